// What a rank says to all others once in an iteration. How it travels: worker/runtime/ballot.h. Without
// LibTorch.
#pragma once

namespace penstock::worker {

struct Votes {
  // The loss of a micro-batch is not finite.
  bool loss_not_finite = false;
  // Write a checkpoint after this iteration: this rank is to end.
  bool stop = false;
  // This rank's part of the last checkpoint is not on the disk yet.
  bool unwritten = false;
};

}  // namespace penstock::worker
