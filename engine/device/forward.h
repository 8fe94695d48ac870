// The forward pass of a model's first layers on a device: what StepRunner does on the host, with
// the same stages in the same order and the same bits.
//
// K and V rows are computed and encoded in the cache's own memory where it grants a device slot;
// else they are computed in scratch and UpdateOnDevice copies them.
//
// A step of one row over the whole model, with nobody listening, is recorded as a graph and
// replayed: what changes from token to token is read from device memory. The cache's bookkeeping is
// not part of the graph, so rollbacks, forks and failures in between need no other recording.
#ifndef LOCKSTEP_ENGINE_DEVICE_FORWARD_H_
#define LOCKSTEP_ENGINE_DEVICE_FORWARD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "caches/device.h"
#include "caches/device_kv.h"
#include "engine/device/adapters.h"
#include "engine/device/expert_ffn.h"
#include "engine/device/kernels.h"
#include "engine/device/weights.h"
#include "engine/model/batch.h"

namespace lockstep::device {

class DeviceForward {
 public:
  // Layers [0, layers) of the model on the device, layers in [1, num_layers]. Throws
  // UnsupportedOnDevice for a model with longer heads or more experts than the kernels take,
  // std::bad_alloc.
  DeviceForward(std::shared_ptr<const Model> model, std::shared_ptr<Device> device, int32_t layers);
  ~DeviceForward();

  // How many layers, from the first on, run on the device for these sequences: as many as it has
  // weights for and all of the caches have rows on it.
  int32_t LayersFor(std::span<const BatchSequence> batch) const;

  // Room for steps of `rows` rows, of which logits of `outputs` are wanted, with positions below
  // `positions`; for adapters of that rank.
  void Reserve(int32_t rows, int32_t outputs, int32_t positions);
  void ReserveAdapters(int32_t rows, int32_t rank);

  // Layers [0, layers), 0 < layers <= LayersFor. With fewer than all of the model's, `residual`
  // [rows, dim] holds the embedded tokens before and the residual stream after. With all, nothing
  // of the host's is read or written, and the rows whose logits are wanted are kept for Logits.
  void Run(std::span<const StepPiece> pieces, int32_t layers, std::span<float> residual);

  // The logits of rows [0, outputs) of those that were wanted, [outputs, vocab_size], after runs
  // over the whole model. Traces as the pieces of each sequence said.
  void Logits(int32_t outputs, std::span<float> logits);
  // ArgMax of the only row of logits, which stay on the device. Likewise.
  int32_t Greedy();

  // How many steps ran as a graph, and how many graphs were recorded.
  int64_t graph_steps() const { return graph_steps_; }
  int64_t graphs_recorded() const { return graphs_recorded_; }

 private:
  struct Piece {
    StepPiece in;
    int32_t first = 0;  // row of the step
    int32_t count = 0;
    DeviceKv* kv = nullptr;  // of the layer in progress
    std::optional<DeviceKvSlot> slot = {};
    DeviceKvView view = {};
  };
  struct RowsOf {
    const DeviceBuffer<float>& rows;
    int64_t width;  // 0: there are none
  };
  struct Angles {
    DeviceBuffer<float> cos, sin;  // [positions, rope_dim / 2]
  };
  struct End {
    TraceSink* trace = nullptr;
    int32_t position = 0;
  };
  struct Graph {
    std::vector<int64_t> memory;  // all of cache and adapters that its arguments name
    bool ends = false;            // it goes on to the logits and their argmax
    int32_t positions_max = 0;
    std::unique_ptr<DeviceGraph> graph;
  };

  void RunLayers(std::span<const StepPiece> pieces, int32_t layers, std::span<float> residual);
  void Begin(std::span<const StepPiece> pieces);
  void EmbedRows();
  void EnqueueLayer(int32_t layer, bool eager);
  void Project(int32_t layer);
  void StoreRows(int32_t layer, bool eager);
  void StoreInPlace(int32_t layer, const Piece& piece, int64_t index);
  void StoreByUpdate(int32_t layer, const Piece& piece);
  void CheckSlot(int32_t layer, const Piece& piece) const;
  void CheckView(int32_t layer, const Piece& piece) const;
  void UploadExactFirst(int32_t layer, const Piece& piece, int64_t index);
  Global<const int32_t> ExactFirst(int32_t layer, const Piece& piece, int64_t index) const;
  // Rows [first, first + count) into trace_rows_.
  void RowsOnHost(const DeviceBuffer<float>& rows, int64_t first, int64_t count, int64_t width);
  void TracePiece(int32_t layer, Stage stage, const Piece& piece, const DeviceBuffer<float>& rows,
                  int64_t width);
  void Attend(int32_t layer, bool eager);
  bool Adapts(int32_t layer, AdapterTarget target) const;
  // y += what each sequence's adapters make of its rows of x.
  void AddAdapters(int32_t layer, AdapterTarget target, const DeviceBuffer<float>& x,
                   const DeviceBuffer<float>& y);
  // residual += norm(scale * (w x with the adapters of w)), without the norm where it is empty.
  void AddToResidual(int32_t layer, AdapterTarget target, const UploadedMatrix& w,
                     const DeviceFloats& norm, const DeviceBuffer<float>& x);
  void FeedForward(int32_t layer);
  void FeedExperts(int32_t layer);
  void TraceJoined(int32_t layer, Stage stage, const RowsOf& left, const RowsOf& right);
  void KeepWantedRows();
  void TraceEnds(int32_t outputs, Stage stage, const DeviceBuffer<float>& rows, int64_t width);
  void FinishLogits(int32_t outputs);  // traced, and in logits_ when the stream gets there
  void EnqueueLogits(int32_t outputs);
  void EnqueueArgMax();

  // Attention's grid and scratch are for so many positions: few different numbers, so that few
  // graphs are recorded.
  static int32_t RoundedPositions(int32_t positions);
  void ReserveRows(int32_t rows);
  void ReserveOutputs(int32_t outputs);
  void ReservePositions(int32_t positions);
  Angles AnglesOf(const RopeFrequencies& frequencies, int32_t positions);

  bool RunAsGraph(std::span<const StepPiece> pieces, int32_t layers);
  bool ReserveAll(int32_t layers);
  const DeviceGraph& GraphFor(int32_t layers, bool ends);
  std::unique_ptr<DeviceGraph> Record(int32_t layers, bool ends);

  const DeviceLayer& weights_of(int32_t layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }
  // The normed residual rows, quantized when a matrix that reads them is.
  void NormRows(const DeviceFloats& weight, bool quantize);
  HeadFinish FinishOf(int32_t layer, const DeviceFloats& norm) const;
  MatMulArgs ProductOf(const UploadedMatrix& w, const DeviceBuffer<float>& x) const;
  void Trace(int32_t layer, Stage stage, const DeviceBuffer<float>& rows, int64_t width);
  void TraceCacheRows(int32_t layer);

  std::shared_ptr<const Model> model_;
  const ModelConfig& config_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  DeviceWeights weights_;
  AttentionShape shape_;  // its window is that of the layer in progress
  DeviceAdapters adapters_;
  DeviceExpertFfn experts_;

  int32_t rows_room_ = 0;
  int32_t outputs_room_ = 0;
  int32_t positions_room_ = 0;
  int32_t positions_max_ = 0;  // of the step in progress, rounded up
  DeviceBuffer<int32_t> tokens_, positions_;
  DeviceBuffer<int32_t> exact_first_;  // [layers, rows]: a step has at most so many pieces
  DeviceBuffer<float> residual_, normed_, query_, key_, value_, attention_, gate_, up_;
  DeviceBuffer<float> projected_;  // what a sublayer adds, where that is not added at once
  DeviceBuffer<uint8_t> blocks_, hidden_blocks_;
  DeviceBuffer<float> key_rows_;  // K as it is stored, for traces
  DeviceBuffer<float> scratch_;
  Angles rope_, local_rope_;
  DeviceBuffer<float> final_, logits_;
  DeviceBuffer<uint8_t> final_blocks_;
  DeviceBuffer<int32_t> best_, best_scratch_;  // the argmax of sequence 0
  bool ended_in_graph_ = false;                // its logits and argmax are there already

  // What uploads read: unchanged until the stream was synchronised.
  std::vector<int32_t> host_tokens_, host_positions_, host_exact_first_;
  std::vector<float> trace_rows_;

  std::vector<Piece> pieces_;
  std::vector<Piece> layer_pieces_;  // of a graph: the one piece, for each layer
  std::vector<End> ends_;
  int32_t n_ = 0;
  std::vector<Graph> graphs_;
  std::vector<int64_t> memory_;  // of the step in progress, as a graph's
  int64_t graph_steps_ = 0;
  int64_t graphs_recorded_ = 0;
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_FORWARD_H_
