// SPDX-License-Identifier: Apache-2.0
// What `baton status` shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/baton/client.h"

namespace baton::cli {

// An earlier look at the cluster, and the seconds since.
struct Earlier {
  ClusterStatus cluster;
  double seconds = 0;
};

// Workers, one a line: queues, batch, KV blocks by owner, memory. With an
// earlier look the tokens per second in between as well, of workers that have
// not been started anew; without one, a dash.
std::string FormatCluster(const ClusterStatus& cluster, const std::optional<Earlier>& earlier);

}  // namespace baton::cli
