#include "io/boxes.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "io/convert.h"

namespace trainer {
namespace {

// A flat range of a [rows, width] buffer: the rest of a begun row, whole rows, the beginning of another.
std::vector<Rectangle> rectangles_of_range(int64_t begin, int64_t end, int64_t width) {
  std::vector<Rectangle> all;
  const auto add = [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
    const Rectangle r{row_begin, row_end, column_begin, column_end};
    if (!r.empty()) all.push_back(r);
  };
  int64_t first = begin / width;
  const int64_t last = end / width;
  if (first == last) {
    add(first, first + 1, begin % width, end % width);
    return all;
  }
  if (begin % width != 0) {
    add(first, first + 1, begin % width, width);
    ++first;
  }
  add(first, last, 0, width);
  add(last, last + 1, 0, end % width);
  return all;
}

struct ParamRange {
  const Param* param = nullptr;
  int64_t begin = 0, end = 0;       // elements of the local buffer
  const std::byte* data = nullptr;  // of element `begin`
};

void add_boxes(const ParamRange& range, const StatePart& part, std::vector<NamedBox>& boxes) {
  const Param& param = *range.param;
  const int rank = param.local.rank;
  check(rank == 1 || rank == 2, Exit::checkpoint, "parameter {}: wanted one or two dimensions, found {}", param.name,
        rank);
  const int64_t width = param.local[rank - 1];
  for (const Rectangle& rect : rectangles_of_range(range.begin, range.end, width))
    for (const Param::Piece& piece : param.pieces) {
      const Rectangle to = rectangle_of(piece.to, rank), from = rectangle_of(piece.from, rank);
      const Rectangle r = intersection(rect, to);
      if (r.empty()) continue;
      const int64_t down = from.row_begin - to.row_begin, right = from.column_begin - to.column_begin;
      NamedBox box;
      box.tensor = stored_name(part.role, piece.tensor);
      box.logical = piece.logical;
      box.box = box_of({r.row_begin + down, r.row_end + down, r.column_begin + right, r.column_end + right}, rank);
      const int64_t first = r.row_begin * width + r.column_begin - range.begin;
      box.values = make_tensor(const_cast<std::byte*>(range.data) + first * int64_t(size_of(part.values.dtype)),
                               part.values.dtype, {r.rows(), r.columns()});
      box.values.row_stride = width;
      boxes.push_back(std::move(box));
    }
}

const StatePart* find_part(const StateView& view, int bucket, Role role) {
  const auto part = std::find_if(view.parts.begin(), view.parts.end(),
                                 [&](const StatePart& p) { return p.bucket == bucket && p.role == role; });
  return part == view.parts.end() ? nullptr : &*part;
}

// Weights that have a master are saved as their master.
bool is_saved(const StateView& view, const StatePart& part) {
  return part.role != Role::weight || !find_part(view, part.bucket, Role::master);
}

struct Range {
  int64_t begin = 0, end = 0;
};
enum class Whose : uint8_t { held, saved };

// Without what another rank of tp or kv saves.
std::vector<Range> without_shared(const StateView& view, const Param& param, Range all) {
  std::vector<Range> left{all};
  for (const Param::Shared& s : param.shared) {
    check(s.axis == Axis::tp || s.axis == Axis::kv, Exit::checkpoint, "parameter {} is shared over axis {}", param.name,
          name_of(s.axis));
    if (s.axis == Axis::tp ? view.first_of_tp : view.first_of_kv) continue;
    std::vector<Range> next;
    for (const Range& r : left) {
      next.push_back({r.begin, std::min(r.end, s.begin)});
      next.push_back({std::max(r.begin, s.end), r.end});
    }
    std::erase_if(next, [](const Range& r) { return r.begin >= r.end; });
    left = std::move(next);
  }
  return left;
}

// Elements `range` of the flat bucket.
void add_range(const StateView& view, const StatePart& part, Range range, Whose whose, std::vector<NamedBox>& boxes) {
  const Bucket& bucket = view.buckets[size_t(part.bucket)];
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    const Param& param = view.params[bucket.params[i]];
    const int64_t at = bucket.begin[i];
    const Range local{std::max<int64_t>(range.begin - at, 0), std::min(range.end - at, param.local.elements())};
    if (local.begin >= local.end) continue;
    const std::vector<Range> ranges = whose == Whose::held ? std::vector{local} : without_shared(view, param, local);
    for (const Range& r : ranges) {
      const int64_t first = at + r.begin - part.begin;
      add_boxes({&param, r.begin, r.end, part.values.data + first * int64_t(size_of(part.values.dtype))}, part, boxes);
    }
  }
}

}  // namespace

Rectangle rectangle_of(const Box& b, int rank) {
  if (rank == 1) return {0, 1, b.lo[0], b.hi[0]};
  return {b.lo[0], b.hi[0], b.lo[1], b.hi[1]};
}

Box box_of(const Rectangle& r, int rank) {
  Box b;
  if (rank == 1) {
    b.lo[0] = r.column_begin;
    b.hi[0] = r.column_end;
  } else {
    b.lo = {r.row_begin, r.column_begin};
    b.hi = {r.row_end, r.column_end};
  }
  return b;
}

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  return {std::max(a.row_begin, b.row_begin), std::min(a.row_end, b.row_end), std::max(a.column_begin, b.column_begin),
          std::min(a.column_end, b.column_end)};
}

std::string stored_name(Role role, const std::string& tensor) {
  switch (role) {
    case Role::weight:
    case Role::master: return tensor;
    case Role::moment1: return std::string(kOptimizerPrefix) + "moment1." + tensor;
    case Role::moment2: return std::string(kOptimizerPrefix) + "moment2." + tensor;
  }
  fail(Exit::checkpoint, "role {} has no name", int(role));
}

std::vector<NamedBox> boxes_of(const StateView& view) {
  std::vector<NamedBox> boxes;
  for (const StatePart& part : view.parts)
    if (is_saved(view, part)) add_range(view, part, {part.begin, part.end}, Whose::held, boxes);
  return boxes;
}

std::vector<NamedBox> boxes_to_save(const StateView& view) {
  std::vector<NamedBox> boxes;
  for (const StatePart& part : view.parts) {
    if (!is_saved(view, part) || part.share.count == 0) continue;
    const int64_t size = part.end - part.begin, count = part.share.count, index = part.share.index;
    add_range(view, part, {part.begin + size * index / count, part.begin + size * (index + 1) / count}, Whose::saved,
              boxes);
  }
  return boxes;
}

std::vector<NamedBox> boxes_to_load(const StateView& view) {
  std::vector<NamedBox> boxes = boxes_of(view);
  for (const StatePart& part : view.parts) {
    if (is_saved(view, part)) continue;
    const StatePart& master = *find_part(view, part.bucket, Role::master);
    add_range(view, part, {part.begin, std::min(part.end, master.begin)}, Whose::held, boxes);
    add_range(view, part, {std::max(part.begin, master.end), part.end}, Whose::held, boxes);
  }
  return boxes;
}

void refresh_weights(const StateView& view) {
  for (const StatePart& weight : view.parts) {
    const StatePart* master = weight.role == Role::weight ? find_part(view, weight.bucket, Role::master) : nullptr;
    if (!master) continue;
    const int64_t begin = std::max(weight.begin, master->begin), end = std::min(weight.end, master->end);
    if (begin >= end) continue;
    const Tensor from = flat_part(master->values, begin - master->begin, end - master->begin);
    const Tensor to = flat_part(weight.values, begin - weight.begin, end - weight.begin);
    convert(from.data, stored_type_of(from.dtype), to.data, to.dtype, end - begin);
  }
}

}  // namespace trainer
