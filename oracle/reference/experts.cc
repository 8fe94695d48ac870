#include "oracle/reference/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/reference/rounding.h"

namespace lockstep::oracle {
namespace {

// Elements [first, first + width) of some rows.
Rows Select(const Rows& x, const std::vector<int64_t>& rows, int64_t first, int64_t width) {
  Rows y(static_cast<int64_t>(rows.size()), width);
  for (int64_t i = 0; i < y.n; ++i) {
    std::copy_n(x.row(rows[static_cast<size_t>(i)]) + first, width, y.row(i));
  }
  return y;
}

void Place(const Rows& x, int64_t from, int64_t row, int64_t first, Rows* y) {
  std::copy_n(x.row(from), x.width, y->row(row) + first);
  std::copy_n(x.bound(from), x.width, y->bound(row) + first);
}

std::vector<int64_t> All(int64_t n) {
  std::vector<int64_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// The experts that a row picks, in increasing order.
std::vector<int64_t> Picks(const MoeShape& shape, const double* logits) {
  std::vector<int64_t> order = All(shape.experts);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (shape.next_best) order.erase(order.begin());
  order.resize(static_cast<size_t>(shape.used));
  std::ranges::sort(order);
  return order;
}

// Rows that pick an expert, and which of each row's picks it is.
struct Users {
  std::vector<int64_t> rows;
  std::vector<int64_t> slots;
};

Users UsersOf(const MoeShape& shape, const Rows& router, int64_t expert) {
  Users users;
  for (int64_t t = 0; t < router.n; ++t) {
    const std::vector<int64_t> picks = Picks(shape, router.row(t));
    const auto found = std::ranges::find(picks, expert);
    if (found == picks.end()) continue;
    users.rows.push_back(t);
    users.slots.push_back(found - picks.begin());
  }
  return users;
}

// A row's weight of one expert, and how far off it may be in units of itself.
struct Weight {
  double value = 0;
  double units = 0;
};

Weight WeightOf(const MoeShape& shape, const double* logits, int64_t expert) {
  const double top = *std::max_element(logits, logits + shape.experts);
  double sum = 0, units = 0;
  const auto exponential = [&](int64_t j) { return std::exp(logits[j] - top); };
  for (int64_t j = 0; j < shape.experts; ++j) {
    sum += exponential(j);
    units += exponential(j) * (top - logits[j] + 2);
  }
  Weight weight = {exponential(expert) / sum, top - logits[expert] + 2 + units / sum};
  weight.units += static_cast<double>(shape.experts) / 16 + 6;
  if (!shape.normalize) return weight;
  double picked = 0;
  for (const int64_t j : Picks(shape, logits)) picked += exponential(j) / sum;
  weight.value /= picked;
  weight.units = 2 * weight.units + static_cast<double>(shape.used);
  return weight;
}

Rows Gate(const MoeShape& shape, const ExpertTensors& w, const Rows& input) {
  const Rows gate = MatMul(shape.swap_gate ? w.up : w.gate, input, shape.codes);
  return SwiGlu(gate, MatMul(shape.swap_gate ? w.gate : w.up, input, shape.codes));
}

// sum += weight * y for one row.
void Add(const Weight& weight, const Rows& y, int64_t from, int64_t row, Rows* sum) {
  for (int64_t d = 0; d < y.width; ++d) {
    const double term = weight.value * y.row(from)[d];
    sum->row(row)[d] += term;
    // The weight's own error and the product's; then every addition that the term goes through.
    sum->bound(row)[d] +=
        weight.value * y.bound(from)[d] + (weight.units + 1 + 8) * kUnit * std::fabs(term);
  }
}

}  // namespace

Rows ExpertRouter(const MoeShape& shape, const LayerTensors& w, const Rows& normed) {
  const Rows logits = MatMul(w.router, normed, shape.codes);
  if (shape.shared_dim == 0) return logits;
  const Rows shared = MatMul(w.shared_router, normed, shape.codes);
  Rows all(normed.n, shape.experts + 1);
  for (int64_t t = 0; t < normed.n; ++t) {
    Place(logits, t, t, 0, &all);
    Place(shared, t, t, shape.experts, &all);
  }
  return all;
}

Rows ExpertHidden(const MoeShape& shape, const LayerTensors& w, const Rows& router,
                  const Rows& normed) {
  Rows hidden(normed.n, shape.used * shape.expert_dim + shape.shared_dim);
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    const Users users = UsersOf(shape, router, expert);
    if (users.rows.empty()) continue;
    const Rows rows = Gate(shape, w.experts[static_cast<size_t>(expert)],
                           Select(normed, users.rows, 0, normed.width));
    for (int64_t i = 0; i < rows.n; ++i) {
      const auto at = static_cast<size_t>(i);
      Place(rows, i, users.rows[at], users.slots[at] * shape.expert_dim, &hidden);
    }
  }
  if (shape.shared_dim == 0) return hidden;
  const Rows shared = Gate(shape, w.shared, normed);
  for (int64_t t = 0; t < normed.n; ++t) {
    Place(shared, t, t, shape.used * shape.expert_dim, &hidden);
  }
  return hidden;
}

Rows ExpertSum(const MoeShape& shape, const LayerTensors& w, const Rows& router,
               const Rows& hidden) {
  Rows sum(hidden.n, w.experts.front().down.rows());
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    const Users users = UsersOf(shape, router, expert);
    for (size_t i = 0; i < users.rows.size(); ++i) {
      const Rows row =
          Select(hidden, {users.rows[i]}, users.slots[i] * shape.expert_dim, shape.expert_dim);
      const Rows y = MatMul(w.experts[static_cast<size_t>(expert)].down, row, shape.codes);
      Add(WeightOf(shape, router.row(users.rows[i]), expert), y, 0, users.rows[i], &sum);
    }
  }
  if (shape.shared_dim == 0 || shape.leave_shared) return sum;
  const Rows input = Select(hidden, All(hidden.n), shape.used * shape.expert_dim, shape.shared_dim);
  const Rows y = MatMul(w.shared.down, input, shape.codes);
  for (int64_t t = 0; t < hidden.n; ++t) {
    const double logit = router.row(t)[shape.experts];
    Add({1 / (1 + std::exp(-logit)), std::fabs(logit) + 4}, y, t, t, &sum);
  }
  return sum;
}

}  // namespace lockstep::oracle
