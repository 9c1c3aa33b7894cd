#include "model/weight_packer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/packed_version.h"

namespace quire {
namespace {

// Bytes of a tensor that one thread packs in one go: enough to be one sequential read.
constexpr size_t kPieceBytes = size_t{1} << 20;
// Of each tensor, that the key covers.
constexpr size_t kSampleBytes = 256;

// Panels that are packed in one go.
int step_panels(const WeightPlacement& placement) {
  const size_t panel_source =
      placement.tensor->bytes.size() / static_cast<size_t>(placement.matrix->panels()) + 1;
  return static_cast<int>(std::max<size_t>(1, kPieceBytes / panel_source));
}

PackedSection section_of(const WeightPlacement& placement) {
  const GgufTensor& tensor = *placement.tensor;
  PackedSection section{.name = std::string(tensor.name), .offset = placement.offset};
  section.bytes = placement.bytes();
  if (const PackedMatrix* matrix = placement.matrix) {
    section.type = static_cast<uint32_t>(matrix->type);
    section.out = static_cast<uint32_t>(matrix->out);
    section.in = static_cast<uint32_t>(matrix->in);
    section.piece_bytes = static_cast<uint64_t>(step_panels(placement)) * matrix->panel_bytes;
  } else {
    section.type = static_cast<uint32_t>(TensorType::kF32);
    section.out = 1;
    section.in = static_cast<uint32_t>(tensor.elements());
    section.piece_bytes = section.bytes;
  }
  return section;
}

// Bytes put one after the other, to be hashed.
class KeyBytes {
 public:
  KeyBytes& add(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  KeyBytes& add(uint64_t number) { return add(std::as_bytes(std::span(&number, 1))); }
  KeyBytes& add(std::string_view text) {
    return add(text.size()).add(std::as_bytes(std::span(text.data(), text.size())));
  }
  [[nodiscard]] ContentHash hash() const { return content_hash(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

size_t WeightPlacement::bytes() const {
  if (matrix != nullptr) return static_cast<size_t>(matrix->panels()) * matrix->panel_bytes;
  return static_cast<size_t>(tensor->elements()) * sizeof(float);
}

std::span<const std::byte> WeightPacker::Piece::source() const {
  const std::span<const std::byte> all = placement->tensor->bytes;
  if (placement->matrix == nullptr) return all;
  const int rows = placement->matrix->out;
  const size_t row_bytes = all.size() / static_cast<size_t>(rows);
  const int row_begin = panel_begin * kPanelRows;
  const int row_end = std::min(panel_end * kPanelRows, rows);
  return all.subspan(static_cast<size_t>(row_begin) * row_bytes,
                     static_cast<size_t>(row_end - row_begin) * row_bytes);
}

size_t WeightPacker::Piece::offset() const {
  if (placement->matrix == nullptr) return placement->offset;
  return placement->offset + static_cast<size_t>(panel_begin) * placement->matrix->panel_bytes;
}

size_t WeightPacker::Piece::bytes() const {
  if (placement->matrix == nullptr) return placement->bytes();
  return static_cast<size_t>(panel_end - panel_begin) * placement->matrix->panel_bytes;
}

WeightPacker::WeightPacker(const GgufFile& file, std::span<const WeightPlacement> placements,
                           ThreadPool& pool)
    : file_(file), placements_(placements), pool_(pool) {
  for (const WeightPlacement& placement : placements_) {
    if (placement.matrix == nullptr) {
      pieces_.push_back({.placement = &placement});
      continue;
    }
    const int panels = placement.matrix->panels();
    const int step = step_panels(placement);
    for (int panel = 0; panel < panels; panel += step)
      pieces_.push_back({&placement, panel, std::min(panels, panel + step)});
  }
}

PackedPlan WeightPacker::plan() const {
  PackedPlan plan;
  plan.layout = kPackedLayoutName;
  plan.layout_version = kPackedLayoutVersion;
  const auto name = file_.get_string("general.name");
  if (name && *name) plan.model = std::string(**name);
  KeyBytes key;
  key.add(plan.layout).add(plan.layout_version).add(kPackedFormatVersion);
  for (const WeightPlacement& placement : placements_) {
    PackedSection section = section_of(placement);
    const std::span<const std::byte> source = placement.tensor->bytes;
    key.add(section.name).add(static_cast<uint64_t>(placement.tensor->type)).add(source.size());
    key.add(section.out).add(section.in).add(section.offset);
    key.add(source.first(std::min(source.size(), kSampleBytes)));
    plan.data_bytes = std::max(plan.data_bytes, section.offset + round_up(section.bytes, kWeightAlignment));
    plan.sections.push_back(std::move(section));
  }
  plan.key = key.hash();
  release_all();  // a sample brings its neighbourhood into memory
  return plan;
}

void WeightPacker::pack_piece(const Piece& piece, std::byte* destination) {
  const GgufTensor& tensor = *piece.placement->tensor;
  if (piece.placement->matrix == nullptr) {
    dequantize_row(tensor.type, tensor.bytes,
                   {reinterpret_cast<float*>(destination), static_cast<size_t>(tensor.elements())});
    return;
  }
  // The rows of the piece are a matrix of their own.
  const PackedMatrix& matrix = *piece.placement->matrix;
  const int rows = std::min(piece.panel_end * kPanelRows, matrix.out) - piece.panel_begin * kPanelRows;
  pack_panels(matrix.type, rows, matrix.in, piece.source(), 0, piece.panel_end - piece.panel_begin,
              destination);
}

void WeightPacker::release(const Piece& piece) const {
  GgufTensor done = *piece.placement->tensor;
  done.bytes = piece.source();
  file_.release(done);
}

// Pages on the border of two pieces belong to neither and are still there.
void WeightPacker::release_all() const {
  for (const WeightPlacement& placement : placements_) file_.release(*placement.tensor);
}

void WeightPacker::pack(std::byte* memory) const {
  std::atomic<size_t> next = 0;
  pool_.run([&](int) {
    for (size_t index = next.fetch_add(1); index < pieces_.size(); index = next.fetch_add(1)) {
      pack_piece(pieces_[index], memory + pieces_[index].offset());
      release(pieces_[index]);
    }
  });
  release_all();
}

ContentHash WeightPacker::source_hash() const {
  std::vector<ContentHash> hashes(pieces_.size());
  std::atomic<size_t> next = 0;
  pool_.run([&](int) {
    for (size_t index = next.fetch_add(1); index < pieces_.size(); index = next.fetch_add(1)) {
      hashes[index] = content_hash(pieces_[index].source());
      release(pieces_[index]);
    }
  });
  release_all();
  return content_hash(hashes);
}

Result<> WeightPacker::write_pieces(const PackedWriter& writer, PieceHashes& hashes) const {
  const size_t piece_bytes_max = std::ranges::max(pieces_, {}, &Piece::bytes).bytes();
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  Result<> outcome;
  pool_.run([&](int) {
    std::vector<std::byte> packed(piece_bytes_max);
    for (size_t index = next.fetch_add(1); index < pieces_.size(); index = next.fetch_add(1)) {
      const Piece& piece = pieces_[index];
      const std::span<std::byte> bytes(packed.data(), piece.bytes());
      hashes.source[index] = content_hash(piece.source());
      pack_piece(piece, bytes.data());
      hashes.packed[index] = content_hash(bytes);
      release(piece);
      if (Result<> written = writer.write(piece.offset(), bytes); !written) {
        const std::lock_guard lock(mutex);
        outcome = std::move(written);
        next = pieces_.size();
      }
    }
  });
  release_all();
  return outcome;
}

Result<PackedFile> WeightPacker::pack(PackedWriter writer, const ContentHash& seen) const {
  PieceHashes hashes{.source = std::vector<ContentHash>(pieces_.size()),
                     .packed = std::vector<ContentHash>(pieces_.size())};
  TRY(write_pieces(writer, hashes));
  std::vector<ContentHash> sections;
  for (size_t begin = 0; begin < pieces_.size();) {
    size_t end = begin;
    while (end < pieces_.size() && pieces_[end].placement == pieces_[begin].placement) ++end;
    sections.push_back(content_hash(std::span(hashes.packed).subspan(begin, end - begin)));
    begin = end;
  }
  return writer.publish({.source = content_hash(hashes.source), .sections = sections, .seen = seen});
}

}  // namespace quire
