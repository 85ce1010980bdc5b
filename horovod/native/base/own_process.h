// Whether a process is still the one that made an object, or has been forked off it.
//
// A forked child has its parent's memory, in copy or, where ranks share it, the very same; and none of its parent's threads.
// What works with either must not be touched there: not used, and not destroyed.
#pragma once

namespace hvd {

class OwnProcess {
 public:
  OwnProcess();
  // False in a forked child of the process that has made this. Any thread; costs a load, where asking for the pid would be a
  // system call.
  bool is_this() const;

 private:
  int forks_;  // that lie between the process that has loaded the core and the one that made this
};

}  // namespace hvd
