// What is known of a sample on a job's stages before anything is planned (Planner::EstimateSamples).
#pragma once

namespace penstock::core {

struct SampleEstimate {
  // Whether the stages can hold it alone; where not, the rest is 0.
  bool fits = false;
  // Divided as evenly as can be: of the busiest position of a pipeline, and of the whole way there and back,
  // nanoseconds.
  double busiest_ns = 0;
  double path_ns = 0;
  // Bounds, nanoseconds: of a plan that has it and others, at least; and of a rank, where samples add up
  // (LowerBound of it alone, and LowerBound::WorkNs).
  double least_alone_ns = 0;
  double least_work_ns = 0;
};

}  // namespace penstock::core
