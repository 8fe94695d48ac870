// What bounds on rounding errors are made of (Higham, "Accuracy and Stability of Numerical
// Algorithms", chapter 3).
#ifndef LOCKSTEP_ORACLE_REFERENCE_ROUNDING_H_
#define LOCKSTEP_ORACLE_REFERENCE_ROUNDING_H_

namespace lockstep::oracle {

inline constexpr double kUnit = 0x1p-24;      // unit roundoff of binary32
inline constexpr double kSecondOrder = 1.01;  // for the terms that first-order bounds leave out

// Where binary32 underflows, errors are absolute. Below every number that matters to a logit.
inline constexpr double kTiny = 1e-36;

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_ROUNDING_H_
