// SPDX-License-Identifier: Apache-2.0
#include "router/served_model.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::router {

ModelSlot::ModelSlot(std::shared_ptr<const ServedModel> model, std::string name)
    : model_(std::move(model)), name_(std::move(name)) {}

std::shared_ptr<const ServedModel> ModelSlot::Get() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

absl::Status ModelSlot::Admit(const v1::Hello& hello) {
  const std::lock_guard lock(mutex_);
  if (model_ == nullptr) {
    auto model = std::make_shared<ServedModel>();
    model->name = !name_.empty() ? name_ : hello.info().model();
    model->vocabulary = hello.vocabulary_size();
    model->context = hello.context_tokens();
    model->fingerprint = hello.model_fingerprint();
    model_ = std::move(model);
  }
  if (hello.model_fingerprint() == model_->fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", hello.info().worker_id(), " runs a model with fingerprint ",
                   hello.model_fingerprint(), "; this router serves ", model_->name,
                   " with fingerprint ", model_->fingerprint));
}

}  // namespace baton::router
