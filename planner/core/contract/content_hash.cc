#include "planner/core/contract/content_hash.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "common/hash/sha256.h"

namespace penstock::core {

std::string ContentHash(const v1::Plan& plan) {
  // A plan that is new has neither of the two fields: no copy is needed.
  if (plan.planning_time_ns() != 0 || !plan.content_hash().empty()) {
    v1::Plan content = plan;
    content.clear_planning_time_ns();
    content.clear_content_hash();
    return ContentHash(content);
  }
  std::string bytes(plan.ByteSizeLong(), '\0');
  {
    google::protobuf::io::ArrayOutputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    google::protobuf::io::CodedOutputStream output(&stream);
    output.SetSerializationDeterministic(true);
    plan.SerializeWithCachedSizes(&output);
  }
  return Sha256(bytes);
}

}  // namespace penstock::core
