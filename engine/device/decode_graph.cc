// Decode steps as recorded graphs.
#include <algorithm>
#include <bit>

#include "engine/device/forward.h"

namespace lockstep::device {
namespace {

// Graphs that are kept: sequences that take turns find their own again.
constexpr size_t kGraphsMax = 16;

// Addresses, sizes and types: two caches that agree in them can share a graph.
void Describe(const DeviceKvSlot& slot, const DeviceKvView& view, std::vector<int64_t>* memory) {
  const auto add = [&](const auto& global) {
    memory->push_back(reinterpret_cast<intptr_t>(global.data));
    memory->push_back(global.size);
  };
  add(slot.keys);
  add(slot.values);
  add(slot.exact_keys);
  add(slot.exact_values);
  add(view.keys);
  add(view.values);
  add(view.exact_rows);
  add(view.exact_keys);
  add(view.exact_values);
  memory->insert(memory->end(), {static_cast<int64_t>(slot.key_type),
                                 static_cast<int64_t>(slot.value_type), view.window});
}

}  // namespace

bool DeviceForward::RunAsGraph(std::span<const StepPiece> pieces, int32_t layers) {
  const bool fits = layers == config_.num_layers && pieces.size() == 1 &&
                    pieces[0].tokens.size() == 1 && pieces[0].trace == nullptr;
  if (!fits) return false;
  Begin(pieces);
  if (!ReserveAll(layers)) return false;
  // Logits of one row are the first ones, if they are wanted.
  const bool ends = pieces[0].wanted > 0 && pieces[0].output == 0;
  stream_->Launch(GraphFor(layers, ends));
  for (int32_t layer = 0; layer < layers; ++layer) {
    const Piece& piece = layer_pieces_[static_cast<size_t>(layer)];
    piece.kv->CommitDeviceSlot(layer, piece.in.positions, *stream_);
  }
  ended_in_graph_ = ends;
  if (pieces[0].wanted > 0 && !ends) KeepWantedRows();
  ++graph_steps_;
  return true;
}

// Every layer's slot, and its view as it will be with that row. False when a layer refuses: the
// step then runs layer by layer, which takes the place of what was reserved here.
bool DeviceForward::ReserveAll(int32_t layers) {
  layer_pieces_.clear();
  for (int32_t layer = 0; layer < layers; ++layer) {
    Piece& piece = layer_pieces_.emplace_back(pieces_[0]);
    piece.kv = piece.in.cache->device_kv(layer);
    piece.slot = piece.kv->TryReserveDeviceSlot(layer, piece.in.positions, *stream_);
    if (!piece.slot) return false;
    CheckSlot(layer, piece);
    UploadExactFirst(layer, piece, 0);
    piece.view = piece.kv->ViewOnDevice(layer, piece.in.positions, *stream_);
    CheckView(layer, piece);
  }
  return true;
}

// The graph of these memories, recorded when there is none yet.
const DeviceGraph& DeviceForward::GraphFor(int32_t layers, bool ends) {
  memory_.clear();
  for (const Piece& piece : layer_pieces_) Describe(*piece.slot, piece.view, &memory_);
  for (const AppliedAdapter& applied : pieces_[0].in.adapters) {
    if (applied.scale == 0.0f) continue;
    memory_.push_back(adapters_.SerialOf(*applied.adapter));
    memory_.push_back(std::bit_cast<int32_t>(applied.scale));
  }
  const auto found = std::ranges::find_if(graphs_, [&](const Graph& graph) {
    return graph.memory == memory_ && graph.positions_max == positions_max_ && graph.ends == ends;
  });
  if (found != graphs_.end()) return *found->graph;
  if (graphs_.size() == kGraphsMax) graphs_.erase(graphs_.begin());
  graphs_.push_back({memory_, ends, positions_max_, Record(layers, ends)});
  ++graphs_recorded_;
  return *graphs_.back().graph;
}

std::unique_ptr<DeviceGraph> DeviceForward::Record(int32_t layers, bool ends) {
  stream_->BeginCapture();
  try {
    EmbedRows();
    for (int32_t layer = 0; layer < layers; ++layer) {
      pieces_[0] = layer_pieces_[static_cast<size_t>(layer)];
      EnqueueLayer(layer, false);
    }
    if (ends) {
      KeepWantedRows();
      EnqueueLogits(1);
      EnqueueArgMax();
    }
  } catch (...) {
    stream_->EndCapture();
    throw;
  }
  return stream_->EndCapture();
}

}  // namespace lockstep::device
