// What a rank's flat parts of buckets are, as boxes of logical tensors: the only place that knows both.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace trainer {

// Several ranks hold the same part: they divide the saving of it among them. Count 0: this one saves nothing of it.
struct Share {
  int index = 0, count = 1;
};

struct StatePart {
  int bucket = 0;
  Role role = Role::weight;
  Tensor values;  // elements [begin, end) of the flat bucket
  int64_t begin = 0, end = 0;
  Share share = {};
};

// One rank's state. Borrowed: model, program and arena outlive it.
struct StateView {
  std::span<const Param> params;
  std::span<const Bucket> buckets;
  std::vector<StatePart> parts;
  bool first_of_tp = true, first_of_kv = true;  // saves what its group of that axis holds alike: Param::shared
};

struct NamedBox {
  std::string tensor;  // as checkpoints name it: "model.norm.weight", "optimizer.moment1.model.norm.weight"
  Shape logical;       // of the whole tensor, one or two dimensions
  Box box;
  Tensor values;  // [rows, columns] of the box, rows strided; a vector is one row
};

// What a checkpoint holds of the view: weights in the widest form there is (the master where one exists, the compute
// weights where not), then moments. A flat range of a matrix is up to three boxes. Padding is in none.
std::vector<NamedBox> boxes_of(const StateView&);
// Those of them that this rank saves: over the ranks of a world, each element of each tensor once.
std::vector<NamedBox> boxes_to_save(const StateView&);
// Those that a checkpoint must fill before refresh_weights can make the rest: with ZeRO 1 and 2 also the compute
// weights whose master another rank holds.
std::vector<NamedBox> boxes_to_load(const StateView&);

// Weights that have a master here are made from it, by rounding.
void refresh_weights(const StateView&);

std::string stored_name(Role, const std::string& tensor);
inline constexpr char kOptimizerPrefix[] = "optimizer.";

// The box as [rows, columns]: lo and hi of both. A vector is one row.
struct Rectangle {
  int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  int64_t rows() const { return row_end - row_begin; }
  int64_t columns() const { return column_end - column_begin; }
  int64_t elements() const { return rows() * columns(); }
  bool empty() const { return rows() <= 0 || columns() <= 0; }
};
Rectangle rectangle_of(const Box&, int rank);
Box box_of(const Rectangle&, int rank);
Rectangle intersection(const Rectangle&, const Rectangle&);

}  // namespace trainer
