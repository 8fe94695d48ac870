#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "reports/limits.h"

namespace lockstep {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

// The first line of /proc/stat: ticks since boot, over all processors, of user, nice, system, idle,
// iowait, irq, softirq and steal (proc(5)).
std::optional<LoadMeter::Times> LoadMeter::Now() {
  std::ifstream in("/proc/stat");
  std::string name;
  double user, nice, system, idle, wait, irq, soft, steal;
  if (!(in >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal)) return {};
  const auto tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  rusage own = {}, children = {};
  if (name != "cpu" || getrusage(RUSAGE_SELF, &own) != 0 ||
      getrusage(RUSAGE_CHILDREN, &children) != 0) {
    return {};
  }
  const double busy = user + nice + system + irq + soft;
  return Times{.busy = busy * tick,
               .steal = steal * tick,
               .total = (busy + idle + wait + steal) * tick,
               .own = Seconds(own.ru_utime) + Seconds(own.ru_stime) + Seconds(children.ru_utime) +
                      Seconds(children.ru_stime)};
}

LoadMeter::LoadMeter() : start_(Now()) {}

std::optional<ForeignLoad> LoadMeter::Load() const {
  const std::optional<Times> now = Now();
  if (!start_ || !now || now->total <= start_->total) return {};
  const double total = now->total - start_->total;
  const double others = (now->busy - start_->busy) - (now->own - start_->own);
  return ForeignLoad{.others = std::clamp(others / total, 0.0, 1.0),
                     .steal = (now->steal - start_->steal) / total};
}

}  // namespace lockstep
