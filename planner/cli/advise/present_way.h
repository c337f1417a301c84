// A job's own way to train among the candidates, and how one goes on another way.
#pragma once

#include <string>

#include "penstock/v1/job.pb.h"
#include "planner/cli/advise/candidates.h"

namespace penstock::cli {

// What is not specified is the planner's default.
Candidate PresentWay(const v1::JobSpec& job);

// Whether they train the same: one stage has one split and one schedule, and what nobody else has is neither
// divided nor summed.
bool IsSameWay(Candidate a, Candidate b);

// Without stages that were given: those of another mesh are others.
v1::JobSpec WithFreeStages(v1::JobSpec job);

// For a search of other ways: without such stages, and with the choices that have a best one, which planning
// takes by itself (recompute, layout), left to it.
v1::JobSpec WithFreeChoices(v1::JobSpec job);

// "pp 2 dp 4", "pp 2 dp 2 tp 2".
std::string DescribeMesh(const Candidate& candidate);
// "--pp 2 --dp 4 --tp 1 ...": all degrees, since a run that goes on has those of its own otherwise.
std::string MeshFlags(const Candidate& candidate);

// The flags of `penstock up --resume` that make a run of `present` go on as `candidate`, found with free
// choices.
std::string SwitchFlags(const v1::JobSpec& present, const Candidate& candidate);

}  // namespace penstock::cli
