#include "transport/control/zmq_socket.h"

#include <zmq.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr int kQueueMax = 1000;  // messages, each direction of a connection
constexpr int kHandshakeMs = 2'000;
constexpr int kHeartbeatMs = 1'000;
constexpr int kHeartbeatTimeoutMs = 3'000;
constexpr int kReconnectMs = 50;
constexpr int kReconnectMaxMs = 1'000;

void set(void* socket, int option, int value) {
  CHECK(zmq_setsockopt(socket, option, &value, sizeof value) == 0);
}
void set(void* socket, int option, const std::string& value) {
  CHECK(zmq_setsockopt(socket, option, value.c_str(), value.size()) == 0);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

bool is_wildcard(const std::string& host) {
  return host == "*" || host == "0.0.0.0" || host == "[::]";
}

// 32 bytes, or none if the text is not a key.
std::string key_bytes(const std::string& z85) {
  uint8_t bytes[32];
  if (z85.size() != 40 || zmq_z85_decode(bytes, z85.c_str()) == nullptr) return {};
  return std::string(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

Error invalid(std::string text) {
  return Error{ErrorCode::invalid_argument, std::move(text)};
}

}  // namespace

ZmqContext::ZmqContext() : handle(zmq_ctx_new()) {
  CHECK(handle != nullptr);
  zmq_ctx_set(handle, ZMQ_IO_THREADS, 1);
}

ZmqContext::~ZmqContext() {
  zmq_ctx_term(handle);
}

ZmqCurve new_zmq_curve() {
  char public_key[41] = {};
  char secret_key[41] = {};
  CHECK(zmq_curve_keypair(public_key, secret_key) == 0);
  return {public_key, secret_key};
}

void* make_link_socket(ZmqContext& context, int type, const ZmqLinkOptions& options) {
  void* socket = zmq_socket(context.handle, type);
  CHECK_MSG(socket != nullptr, "no ZeroMQ socket: too many open files?");
  const auto message_max = static_cast<int64_t>(options.limits.message_bytes_max);
  CHECK(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &message_max, sizeof message_max) == 0);
  set(socket, ZMQ_SNDHWM, kQueueMax);
  set(socket, ZMQ_RCVHWM, kQueueMax);
  set(socket, ZMQ_LINGER, options.linger_ms);
  set(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  set(socket, ZMQ_HEARTBEAT_IVL, kHeartbeatMs);
  set(socket, ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs);
  set(socket, ZMQ_RECONNECT_IVL, kReconnectMs);
  set(socket, ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
  if (type == ZMQ_ROUTER) set(socket, ZMQ_ROUTER_MANDATORY, 1);
  if (!options.curve.given()) return socket;
  set(socket, ZMQ_CURVE_PUBLICKEY, options.curve.public_key);
  set(socket, ZMQ_CURVE_SECRETKEY, options.curve.secret_key);
  if (type == ZMQ_ROUTER) {
    set(socket, ZMQ_CURVE_SERVER, 1);
    set(socket, ZMQ_ZAP_DOMAIN, std::string("baton"));
  } else {
    set(socket, ZMQ_CURVE_SERVERKEY, options.curve.public_key);
  }
  return socket;
}

Result<std::string> bind_free_port(void* socket, const std::string& host) {
  const std::string wanted = "tcp://" + host + ":*";
  if (zmq_bind(socket, wanted.c_str()) != 0) {
    return invalid("cannot bind " + wanted + ": " + zmq_strerror(zmq_errno()) +
                   "; give an address of this machine");
  }
  char endpoint[256];
  size_t size = sizeof endpoint;
  CHECK(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0);
  return std::string(endpoint);
}

Result<void> check_endpoint(ZmqContext& context, const std::string& endpoint) {
  void* socket = zmq_socket(context.handle, ZMQ_DEALER);
  CHECK_MSG(socket != nullptr, "no ZeroMQ socket: too many open files?");
  set(socket, ZMQ_LINGER, 0);
  const bool sound = zmq_connect(socket, endpoint.c_str()) == 0;
  const int error = zmq_errno();
  zmq_close(socket);
  if (sound) return {};
  return invalid("\"" + endpoint + "\" is not an endpoint to connect to: " + zmq_strerror(error));
}

Result<void> check_link_options(const ZmqLinkOptions& options) {
  const ZmqCurve& curve = options.curve;
  if (curve.given()) {
    if (zmq_has("curve") == 0) return invalid("this build of ZeroMQ has no CURVE");
    char derived[41];
    if (key_bytes(curve.public_key).empty() || key_bytes(curve.secret_key).empty() ||
        zmq_curve_public(derived, curve.secret_key.c_str()) != 0 || curve.public_key != derived) {
      return invalid("the CURVE keys are not a pair of Z85 keys of 40 characters each");
    }
  } else if (!is_loopback(options.bind_host) && !options.insecure) {
    return invalid("refusing to bind the control plane to " + options.bind_host +
                   " without CURVE keys: whoever reaches it could command this cluster; give keys, "
                   "or --insecure on a network that is isolated");
  }
  if (is_wildcard(options.bind_host) && options.advertise_host.empty()) {
    return invalid("bound to " + options.bind_host +
                   ", the control plane needs the address that other ranks reach this host by");
  }
  return {};
}

// Request frames: version, request id, domain, address, identity, mechanism, credentials.
std::vector<std::string> zap_answer(const std::vector<std::string>& request,
                                    const std::string& public_key) {
  const bool formed = request.size() >= 7 && request[0] == "1.0";
  const bool welcome = formed && request[5] == "CURVE" && request[6] == key_bytes(public_key) &&
                       request[6].size() == 32;
  return {"1.0",
          request.size() > 1 ? request[1] : std::string(),
          welcome ? "200" : "400",
          welcome ? "OK" : "not a key of this cluster",
          "",
          ""};
}

}  // namespace baton
