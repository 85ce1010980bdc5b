#include "observe/observers.h"

#include <cmath>

#include "base/error.h"
#include "base/time_limits.h"

namespace hvd {
namespace {

constexpr char kDynamic[] = "DYNAMIC";

std::unique_ptr<Timeline> make_timeline(const Settings& settings, int rank, const Log& log) {
  if (rank != 0 || settings.timeline.empty()) return nullptr;
  auto timeline = std::make_unique<Timeline>(log);
  if (settings.timeline != kDynamic) timeline->start(settings.timeline, settings.timeline_mark_cycles);
  return timeline;
}

std::string end_asked_by(const Settings& settings) {
  if (!settings.stall_shutdown_asked_by.empty()) return settings.stall_shutdown_asked_by;
  return "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" + std::to_string(std::llround(settings.stall_shutdown_time_seconds));
}

StallLimits stall_limits_of(const Settings& settings, const Log& log) {
  const double warn = settings.stall_check_time_seconds;
  double end = settings.stall_shutdown_time_seconds;
  if (end > 0 && end < warn) {
    HVD_LOG(log, kWarning,
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" << end
                                                   << " is ignored: it is shorter than "
                                                      "HOROVOD_STALL_CHECK_TIME_SECONDS="
                                                   << warn);
    end = 0;
  }
  return {!settings.stall_check_disable, StallLimits::Seconds(warn), StallLimits::Seconds(end), end_asked_by(settings)};
}

}  // namespace

Observers::Observers(const Settings& settings, int rank, const Log& log)
    : log_(log),
      may_have_timeline_(!settings.timeline.empty()),
      stall_limits_(stall_limits_of(settings, log)),
      inspects_(rank == 0 && stall_limits_.is_on),
      timeline_(make_timeline(settings, rank, log)),
      stall_inspector_(stall_limits_) {}

std::vector<Listener*> Observers::listeners() const {
  return timeline_ ? std::vector<Listener*>{timeline_.get()} : std::vector<Listener*>{};
}

void Observers::on_idle() {
  if (timeline_) timeline_->on_idle();
}

void Observers::require_timeline(const char* call) const {
  if (!may_have_timeline_) throw InvalidArgument(Said::timeline_not_asked_for, {.others = {{"call", call}}});
}

void Observers::start_timeline(const std::string& path, bool mark_cycles, bool continues) {
  require_timeline("start_timeline");
  if (timeline_) timeline_->start(path, mark_cycles, continues);
}

void Observers::stop_timeline() {
  require_timeline("stop_timeline");
  if (timeline_) timeline_->stop();
}

void Observers::note_span(const std::string& name, std::chrono::steady_clock::time_point begin,
                          std::chrono::steady_clock::time_point end, const std::string& arguments) {
  if (timeline_) timeline_->span(name, begin, end, arguments);
}

bool Observers::is_inspection_due(std::chrono::steady_clock::time_point now) {
  if (!inspects_ || now - last_inspection_ < time_limits::kStallLook) return false;
  last_inspection_ = now;
  return true;
}

StallReport Observers::inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete) {
  StallReport report = stall_inspector_.inspect(now, incomplete);
  if (!report.warning.empty()) HVD_LOG(log_, kWarning, report.warning);
  return report;
}

}  // namespace hvd
