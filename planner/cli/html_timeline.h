// A plan as a web page: a timeline that opens in any browser, without a network and without other files.
//
//   PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically("t.html", HtmlTimeline(planned)));
//
// The page's template, style and script are in planner/cli/html; the build puts them into the program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

// What the page's script draws. Times in nanoseconds, memory in bytes; an instruction is an array
// [op, stream, micro-batch, stage, start, duration, acquired, released], of a collective with its bytes, of a
// transfer with bytes, peer and whether it is a gradient (1) or an activation (0), of a pass of a stage group
// of several ranks with an array: [own duration, bytes and time of tensor ranks, bytes sent to and received
// from context ranks, their time, the part of it that is exposed, bytes and time of rows for other ranks'
// experts, the part of it that is exposed].
nlohmann::ordered_json TimelineData(const v1::PlannedBatch& planned);

// The whole page. Takes any plan, valid or not: text from the plan cannot become part of the page's code.
// `explanation`: ToJson of an Explanation (explain.h), shown above the timeline; null for none.
std::string HtmlTimeline(const v1::PlannedBatch& planned, nlohmann::ordered_json explanation);
std::string HtmlTimeline(const v1::PlannedBatch& planned);

}  // namespace penstock::cli
