// How the layers of a job are divided into stages and those placed on ranks, where the job leaves it to the
// planner (STAGE_SPLIT_AUTO). Decided once for a job, because parameters live on their ranks.
//
// Placements: one stage a rank; and, where the schedule allows it, two stages a rank, as a V (stages 0, 1, 2,
// 2, 1, 0: ranks that hold the long-lived activations of the first stages hold the short-lived ones of the
// last; Qi et al. 2024, "Pipeline Parallelism with Controllable Memory") or as a loop (0, 1, 2, 0, 1, 2:
// Narayanan et al. 2021, interleaved schedule). Each is balanced by time, then improved by moving single
// layers, judged by planning a typical batch with little effort. Such a plan is as good as its search was
// lucky, about 1 %, so the last layouts of every placement race: all are planned with normal effort on one
// batch, the better half on more, and so on, and the best mean wins. Several stages a rank must pay: they
// cost transfers and instructions.
#pragma once

#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/stages/stage_balance.h"

namespace penstock::core {

// The job with its stages chosen. When nothing fits in memory: the layout that needs least. `probe`: false
// skips planning and takes the balanced layout with one stage a rank, for questions that need no good answer.
// `run_tasks` may use threads: the choice is the same.
// The choice is of no worth when `stop` has stopped it.
Job ChooseStages(const Profile& profile, const Job& job, bool probe, const RunTasks& run_tasks,
                 StopToken stop = {});

}  // namespace penstock::core
