// SPDX-License-Identifier: Apache-2.0
#include "common/sched/policy.h"

#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/sched/policies.h"

namespace baton::sched {
namespace {

constexpr double kLeastWeight = 1e-3;
constexpr double kMostWeight = 1e3;

using Make = std::function<std::unique_ptr<Policy>(const PolicyOptions&)>;

const std::vector<std::pair<std::string, Make>>& List() {
  static const auto& list = *new std::vector<std::pair<std::string, Make>>{
      {"fcfs", [](const PolicyOptions&) { return MakeFcfs(); }},
      {"srw", [](const PolicyOptions& options) { return MakeShortestWork(options.aging); }},
      {"deadline", [](const PolicyOptions& options) { return MakeDeadlineFirst(options.aging); }},
      {"priority", [](const PolicyOptions& options) { return MakePriorityClasses(options.aging); }},
      {"fair", [](const PolicyOptions& options) { return MakeFairShares(options.tenant_weights); }},
  };
  return list;
}

absl::Status CheckWeight(std::string_view tenant, double weight) {
  if (weight >= kLeastWeight && weight <= kMostWeight) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the weight of tenant \"", std::string(tenant),
                                                 "\" is ", weight, "; it must be ", kLeastWeight,
                                                 " to ", kMostWeight));
}

}  // namespace

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const auto& [name, make] : List()) names.push_back(name);
  return names;
}

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const PolicyOptions& options) {
  if (options.aging < absl::Milliseconds(1) || options.aging > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the policy's aging is ", absl::FormatDuration(options.aging), "; it must be 1ms to 24h"));
  }
  for (const auto& [tenant, weight] : options.tenant_weights) {
    if (absl::Status status = CheckWeight(tenant, weight); !status.ok()) return status;
  }
  for (const auto& [name, make] : List()) {
    if (name == options.name) return make(options);
  }
  return absl::InvalidArgumentError(absl::StrCat("the policy is \"", options.name,
                                                 "\"; it must be one of ",
                                                 absl::StrJoin(PolicyNames(), ", ")));
}

absl::StatusOr<std::pair<std::string, double>> ParseTenantWeight(std::string_view text) {
  const size_t equals = text.rfind('=');
  double weight = 0;
  if (equals == std::string_view::npos ||
      !absl::SimpleAtod({text.data() + equals + 1, text.size() - equals - 1}, &weight)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(text), "\" must be TENANT=WEIGHT"));
  }
  const std::string tenant(text.substr(0, equals));
  if (absl::Status status = CheckWeight(tenant, weight); !status.ok()) return status;
  return std::pair(tenant, weight);
}

}  // namespace baton::sched
