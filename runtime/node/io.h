#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>

#include "runtime/node/node.h"

namespace baton {

// The event loop of a node, for sockets that live on it. Only .cpp files include this.
struct NodeIo {
  static boost::asio::io_context& of(Node& node);
};

}  // namespace baton
