#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "transport/control/zmq_link.h"

namespace baton {

// A ZeroMQ context; ending it waits for its sockets to be closed and for their linger.
struct ZmqContext {
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* handle;
};

// A key pair that nobody has had before.
ZmqCurve new_zmq_curve();

// A socket with the settings of the control plane: bounded messages and queues, handshakes and
// heartbeats with deadlines, CURVE if keys are given. `type` is ZMQ_ROUTER (the side that binds)
// or ZMQ_DEALER. The caller owns it.
void* make_link_socket(ZmqContext& context, int type, const ZmqLinkOptions& options);

// Binds a free port of a host and returns the endpoint with the port.
Result<std::string> bind_free_port(void* socket, const std::string& host);

// Fails with invalid_argument unless a socket can be told to connect to it.
Result<void> check_endpoint(ZmqContext& context, const std::string& endpoint);

// Fails with invalid_argument and a sentence: an address that others can reach without CURVE or
// `insecure`; keys that are not Z85; a wildcard address without advertise_host.
Result<void> check_link_options(const ZmqLinkOptions& options);

// The answer of the allow-list to one request of ZeroMQ's authentication protocol (ZAP): welcome
// exactly when the client proved that it holds the cluster's key.
std::vector<std::string> zap_answer(const std::vector<std::string>& request,
                                    const std::string& public_key);

inline constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";

}  // namespace baton
