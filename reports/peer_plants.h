// Faults put into lockstep's side of a peer check (peer_check.h), to see it find them: each makes
// lockstep compute something else than the file says, and the peer computes what it says.
#ifndef LOCKSTEP_REPORTS_PEER_PLANTS_H_
#define LOCKSTEP_REPORTS_PEER_PLANTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "engine/gguf.h"

namespace lockstep {

enum class PeerPlantKind : uint8_t {
  kRopePairing,
  kRopeBase,
  kRopeScaling,
  kPosition,
  kNoBias,
  kNoQkNorm,
  kHeads,
  kNoMultipliers,
  kNormEps,
  kWindow,
  kSoftCaps,
  kExperts,
  kStoredRows,
};

struct PeerPlant {
  PeerPlantKind kind = PeerPlantKind::kRopePairing;
  std::string_view name;  // "rope-pairing"
  std::string_view what;  // one sentence
};

// All, in the order of PeerPlantKind.
std::span<const PeerPlant> PeerPlants();
// Throws Error naming the plants when there is none of that name.
const PeerPlant& ParsePeerPlant(std::string_view name);

// The model as an engine with the fault would read it: the file itself for kPosition, which is in
// the tokens' positions. nullptr when the model has nothing that the fault changes.
std::shared_ptr<const GgufFile> PlantedModel(const std::shared_ptr<const GgufFile>& file,
                                             PeerPlantKind kind);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PEER_PLANTS_H_
