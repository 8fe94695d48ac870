// The determinism matrix as a picture: a row an axis, a box a value. One self-contained SVG, which
// follows the reader's light or dark theme and needs no script.
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_PICTURE_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_PICTURE_H_

#include <string>

#include "oracle/matrix.h"

namespace lockstep::cli {

// What stands above and below the boxes.
struct PictureText {
  std::string title;    // "Determinism matrix"
  std::string subject;  // models, kernels, seed
  std::string repeat;   // the command
};

// A whole SVG document. Each box has a title with its digest, what was compared and the test that
// backs the axis.
std::string MatrixSvg(const MatrixResult& result, const PictureText& text);

// A whole HTML page: the same texts, none of them cut, around the boxes.
std::string MatrixHtml(const MatrixResult& result, const PictureText& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_PICTURE_H_
