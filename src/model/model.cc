#include "model/model.h"

#include <utility>

#include "base/check.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace quire {

struct Model::Impl {
  ModelSpec spec;
  Weights weights;
  std::unique_ptr<Transformer> transformer;
  ModelProbe probe;
};

Result<std::unique_ptr<Model>> Model::load(const GgufFile& file, const ModelOptions& options) {
  CHECK(options.kernels != nullptr && options.pool != nullptr);
  CHECK(options.step_tokens_max > 0 && options.step_logits_max > 0);
  auto impl = std::make_unique<Impl>();
  impl->spec = TRY(read_model_spec(file));
  impl->weights = TRY(Weights::load(file, impl->spec, *options.pool, options.packed_cache));
  impl->transformer = TRY(Transformer::create(impl->spec, impl->weights, options));
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Model::~Model() = default;

const ModelSpec& Model::spec() const {
  return impl_->spec;
}

uint64_t Model::weight_bytes() const {
  return impl_->weights.bytes();
}

WeightOrigin Model::weight_origin() const {
  return impl_->weights.origin();
}

const std::string& Model::weight_notice() const {
  return impl_->weights.notice();
}

uint64_t Model::decode_weight_bytes() const {
  const PackedMatrix& embedding = impl_->weights.embedding();
  if (embedding.data == impl_->weights.head().matrix.data) return weight_bytes();
  return weight_bytes() - static_cast<uint64_t>(embedding.panels()) * embedding.panel_bytes;
}

void Model::prepare_for(const KvStore& kv) {
  impl_->transformer->prepare_for(kv);
}

LogitsView Model::forward(const StepPlan& plan, KvStore& kv) {
  return impl_->transformer->forward(plan, kv, impl_->probe);
}

void Model::set_probe(ModelProbe probe) {
  impl_->probe = std::move(probe);
}

}  // namespace quire
