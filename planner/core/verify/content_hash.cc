// Rule 0: the content hash is that of the plan (execution.md, section 13).
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string>

#include "common/hash/sha256.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {

void CheckContentHash(const v1::Plan& plan, Report& report) {
  if (plan.content_hash().empty()) return report.Add(kStructure, "content_hash is missing");
  v1::Plan content = plan;
  content.clear_planning_time_ns();
  content.clear_content_hash();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream output(&stream);
    output.SetSerializationDeterministic(true);
    content.SerializeToCodedStream(&output);
  }
  if (Sha256(bytes) != plan.content_hash())
    report.Add(kStructure, "content_hash is not that of the plan: it was changed after it was made");
}

}  // namespace penstock::core::verify
