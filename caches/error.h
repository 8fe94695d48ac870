// Errors of the outside world: files, arguments, formats. `lockstep` turns them into exit code 2.
#ifndef LOCKSTEP_CACHES_ERROR_H_
#define LOCKSTEP_CACHES_ERROR_H_

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

// One sentence each: where (a file, an argument, a field in it), what is wrong, what to do.
struct ErrorParts {
  std::string where;   // "model.gguf: tensor 'blk.0.attn_q.weight'"
  std::string what;    // "type id 9999 is unknown"
  std::string remedy;  // "convert the model to F32, F16, BF16, Q8_0 or Q4_0"; may be empty
};

// what() is "where: what (remedy)".
class Error : public std::runtime_error {
 public:
  explicit Error(const ErrorParts& parts)
      : std::runtime_error(parts.where + ": " + parts.what +
                           (parts.remedy.empty() ? "" : " (" + parts.remedy + ")")),
        parts_(parts) {}

  const ErrorParts& parts() const { return parts_; }

 private:
  ErrorParts parts_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_ERROR_H_
