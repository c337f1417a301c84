// Boundary to CLI11, which throws on wrong flags.
#include "planner/service/main/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/parallel/task_pool.h"
#include "common/process/memory_limit.h"
#include "common/tracing/otlp_transport.h"
#include "common/version/version.h"
#include "planner/service/store/open/open_event_store.h"

namespace penstock {
namespace {

const std::map<std::string, LogFormat> kFormats = {{"text", LogFormat::kText}, {"json", LogFormat::kJson}};

struct Texts {
  std::string log_level = "info";
  std::string log_format = "text";
  double drain_seconds = 2;
  double lease_seconds = absl::ToDoubleSeconds(PlannerServerOptions().lease_time);
  // 0: by what there is.
  size_t memory_bytes = 0;
  double keep_unstarted_seconds = absl::ToDoubleSeconds(EngineOptions().keep_unstarted_jobs);
  double keep_finished_seconds = absl::ToDoubleSeconds(EngineOptions().keep_finished_jobs);
  double planning_limit_seconds = absl::ToDoubleSeconds(EngineOptions().planning_limit);
};

template <typename Value>
CLI::IsMember OneOf(const std::map<std::string, Value>& names) {
  std::vector<std::string> allowed;
  allowed.reserve(names.size());
  for (const auto& [name, value] : names) allowed.push_back(name);
  return CLI::IsMember(allowed);
}

// CLI::Range lets NaN pass, which is neither below nor above.
CLI::Validator Between(double least, double most) {
  const std::string range = absl::StrCat(least, " to ", most);
  return {[=](std::string& text) {
            double value = 0;
            const bool inside = absl::SimpleAtod(text, &value) && value >= least && value <= most;
            return inside ? std::string() : absl::StrCat("'", text, "': use ", range);
          },
          range};
}

// "512MB" in bytes.
void AddSize(CLI::App* app, const std::string& flag, size_t* bytes, const std::string& help,
             const std::string& otherwise) {
  constexpr uint64_t kLeast = uint64_t{1} << 20;
  constexpr uint64_t kMost = uint64_t{1} << 50;
  app->add_option(flag, *bytes, help)
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(kLeast, kMost))
      ->default_str(otherwise);
}

void AddServerFlags(CLI::App* app, PlannerServerOptions* options) {
  app->add_option("--listen", options->listen, "host:port of the gRPC service; port 0 picks a free one")
      ->capture_default_str();
  app->add_option("--metrics-listen", options->metrics_listen,
                  "host:port of Prometheus metrics (default: none)");
  app->add_option("--otlp-endpoint", options->otlp_endpoint,
                  "HOST:PORT of a collector of OpenTelemetry that takes OTLP over gRPC, without TLS: the way "
                  "of each batch is exported as spans (default: none)")
      ->check(WhatIsWrongWithCollector);
  app->add_option(
      "--page-listen", options->page.listen,
      "host:port of a page for browsers that shows jobs and how they run, read-only (default: none)");
  app->add_flag(
      "--page-allow-anyone", options->page.allow_anyone,
      "serve the page to other machines, unencrypted and without asking who reads it: whoever reaches the "
      "port sees every job");
  app->add_option("--health-listen", options->health_listen,
                  "host:port of a second gRPC server with grpc.health.v1 alone, for probes (default: none)");
  app->add_flag("--reflection", options->reflection, "serve gRPC reflection, for grpcurl");
}

void AddSecurityFlags(CLI::App* app, PlannerServerOptions* options) {
  ServerSecurity& security = options->security;
  app->add_option(
      "--tls-cert", security.certificate,
      "PEM file of this planner's certificate: calls are encrypted. These files are read again when "
      "they change");
  app->add_option("--tls-key", security.key, "PEM file of its private key");
  app->add_option(
      "--tls-client-ca", security.client_authority,
      "PEM file of who signs callers' certificates; their URI spiffe://DOMAIN/penstock/ROLE/OWNER says "
      "what they may do (docs/security.md)");
  app->add_option("--tokens", security.tokens,
                  "file of lines TOKEN ROLE [OWNER]: callers without a certificate are known by these");
  app->add_flag(
      "--allow-anyone", options->allow_anyone,
      "listen for other machines without knowing who calls: whoever reaches the port may end, delete "
      "and feed every job");
}

void AddEngineFlags(CLI::App* app, EngineOptions* options, Texts* texts) {
  app->add_option("--planning-threads", options->planning_threads,
                  "threads that plan: so many batches at a time, and a batch that is alone uses them all")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--queue-capacity", options->queue_capacity, "batches that may wait for a planning thread")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--planning-limit-seconds", texts->planning_limit_seconds,
                  "how long one batch may be planned, or one job prepared, before it is given up")
      ->check(Between(0.1, 86400))
      ->capture_default_str();
  app->add_option("--max-jobs", options->quotas.jobs,
                  "jobs held at a time; those that are over make room, oldest first")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->add_option(
         "--jobs-of-owner", options->quotas.jobs_of_owner,
         "jobs that one owner may have at a time, where callers are known (default: three quarters of "
         "--max-jobs)")
      ->check(CLI::Range(1, 1 << 16));
  app->add_option(
         "--unstarted-jobs-of-owner", options->quotas.unstarted_of_owner,
         "jobs of one owner that are registered and that nobody started, by a batch, a worker or a reader")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->add_option("--streams-of-owner", options->owners.streams,
                  "open streams of programs of one owner, beside the one that each worker has in any case")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app->add_option("--samples-of-owner-a-minute", options->owners.samples_a_minute,
                  "samples of one owner that are accepted a minute, in batches and what-ifs; 0: no limit")
      ->check(Between(0, 1e15))
      ->capture_default_str();
  app->add_option(
         "--planning-seconds-of-owner-a-minute", options->owners.planning_seconds_a_minute,
         "seconds of a core that planning threads may compute for one owner, a minute: beyond it nothing "
         "new of the owner is accepted until the time has come in; 0: no limit")
      ->check(Between(0, 1e9))
      ->capture_default_str();
  app->add_option(
         "--keep-unstarted-seconds", texts->keep_unstarted_seconds,
         "how long a job is kept that nobody starts; after a minute it makes room where a place is needed")
      ->check(Between(60, 1e9))
      ->capture_default_str();
  app->add_option("--keep-finished-seconds", texts->keep_finished_seconds,
                  "how long a job that is over is kept, to be looked at")
      ->check(Between(0, 1e9))
      ->capture_default_str();
  AddSize(
      app, "--job-memory", &options->job_memory_bytes,
      "batches, plans and reports of one job in memory, e.g. 512MB; what is dropped is made again when it is "
      "asked for",
      "1GB");
  AddSize(app, "--memory", &texts->memory_bytes,
          "what the planner may take: half for batches, plans and reports of all jobs, half for what is "
          "being planned, and an eighth more for programs that streams hold and nobody has read. "
          "A batch that takes more is refused (default: 4GB, or three quarters of what the machine or the "
          "control group "
          "has where that is less)",
          "");
}

std::string CheckStore(const std::string& url) {
  return std::string(CheckStoreUrl(url, "--store").message());
}

// Of planners that share a store.
void AddLeaderFlags(CLI::App* app, PlannerServerOptions* options, Texts* texts) {
  app->add_option("--advertise", options->advertise,
                  "HOST:PORT where clients reach this planner, unlike that of every other: its name where "
                  "several share a store (default: the host of --listen, or this machine's name)");
  app->add_option(
         "--lease-seconds", texts->lease_seconds,
         "where several planners share a store: how long the leader may be silent until another leads; "
         "the same for all of them")
      ->check(Between(1, 3600))
      ->capture_default_str();
}

void AddProcessFlags(CLI::App* app, PlannerFlags* flags, Texts* texts) {
  app->add_option("--drain-seconds", texts->drain_seconds,
                  "after SIGTERM, how long accepted batches are still planned")
      ->check(Between(0, 3600))
      ->capture_default_str();
  app->add_option("--store", flags->store,
                  "where jobs are kept: sqlite:PATH, one file, from which a planner that was killed goes on; "
                  "postgres://USER@HOST/NAME, a database that several planners share, of which one leads; or "
                  "memory")
      ->check(CheckStore)
      ->capture_default_str();
  app->add_option(
      "--simulated-profile", flags->simulated_profile,
      "a cost profile: what simulated devices take, whatever their job says, so that its plans are "
      "made with costs that are wrong (default: what it says)");
  app->add_option("--port-file", flags->port_file,
                  "write the bound ports to this file as JSON, at once when they are bound");
  app->add_option(
      "--audit-log", flags->audit_log,
      "a file of JSON lines: who registered, drained or deleted a job, made a backup, or was refused; "
      "rotated at 64 MB (default: none)");
  app->add_option("--log-level", texts->log_level, "debug, info, warning or error")
      ->check(CLI::IsMember(LogLevelNames()))
      ->capture_default_str();
  app->add_option("--log-format", texts->log_format, "text or json")
      ->check(OneOf(kFormats))
      ->capture_default_str();
}

// `asked`: --memory, 0 without it.
void DivideMemory(size_t asked, EngineOptions* options) {
  constexpr size_t kUsual = size_t{4} << 30;
  constexpr size_t kLeastPlanning = size_t{64} << 20;
  const size_t available = MemoryOfProcess();
  size_t memory = asked;
  if (memory == 0) memory = available == 0 ? kUsual : std::min(kUsual, available / 4 * 3);
  options->memory_bytes = memory / 2;
  options->stream_memory_bytes = memory / 8;
  options->planning_memory_bytes = static_cast<int64_t>(std::max(kLeastPlanning, memory / 2));
  // Beside what is counted: the program itself, connections, and what a plan takes above its estimate until
  // it is stopped.
  const size_t most = memory / 8 * 9 + kLeastPlanning;
  options->process_memory_bytes = available == 0 ? most : std::min(most, available / 10 * 9);
}

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv) {
  ParsedFlags parsed;
  Texts texts;
  parsed.flags.server.engine.planning_threads = DefaultThreads();
  CLI::App app("Plans training iterations ahead of time and streams every rank its program.",
               "penstock-planner");
  app.set_version_flag("--version", VersionOf("penstock-planner"));
  AddServerFlags(&app, &parsed.flags.server);
  AddSecurityFlags(&app, &parsed.flags.server);
  AddEngineFlags(&app, &parsed.flags.server.engine, &texts);
  AddProcessFlags(&app, &parsed.flags, &texts);
  AddLeaderFlags(&app, &parsed.flags.server, &texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kWrongRequest = 2;
    parsed.exit_status = app.exit(error) == 0 ? 0 : kWrongRequest;
    return parsed;
  }
  DivideMemory(texts.memory_bytes, &parsed.flags.server.engine);
  parsed.flags.server.engine.planning_limit = absl::Seconds(texts.planning_limit_seconds);
  parsed.flags.server.engine.keep_unstarted_jobs = absl::Seconds(texts.keep_unstarted_seconds);
  parsed.flags.server.engine.keep_finished_jobs = absl::Seconds(texts.keep_finished_seconds);
  parsed.flags.server.lease_time = absl::Seconds(texts.lease_seconds);
  parsed.flags.server.drain = absl::Seconds(texts.drain_seconds);
  parsed.flags.log_level = *LogLevelFromName(texts.log_level);
  parsed.flags.log_format = kFormats.at(texts.log_format);
  return parsed;
}

}  // namespace penstock
