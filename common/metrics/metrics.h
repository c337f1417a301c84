// Prometheus metrics: families of counters, gauges and histograms, and the HTTP endpoint that serves them.
//
// This is the one place that knows prometheus-cpp (and the exceptions it throws).
//
//   MetricsRegistry registry;
//   CounterFamily plans = registry.AddCounter("penstock_plans_total", "Plans made, by result.");
//   plans.Increment({{"result", "ok"}});
//   PENSTOCK_ASSIGN_OR_RETURN(auto server, MetricsServer::Start("127.0.0.1:0", &registry));
//   // curl http://127.0.0.1:<server->port()>/metrics
//
// Names begin with penstock_ (those of process_metrics.h are every exporter's) and end with a base unit
// (_seconds, _bytes, _ratio) or _total. Labels take few values. All classes are thread-safe; families stay
// valid as long as their registry.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
template <typename T>
class Family;
}  // namespace prometheus

namespace penstock {

using MetricLabels = std::map<std::string, std::string>;

class CounterFamily {
 public:
  void Increment(const MetricLabels& labels = {}, double amount = 1) const;

 private:
  friend class MetricsRegistry;
  explicit CounterFamily(prometheus::Family<prometheus::Counter>* family) : family_(family) {}
  prometheus::Family<prometheus::Counter>* family_;
};

class GaugeFamily {
 public:
  void Set(const MetricLabels& labels, double value) const;

 private:
  friend class MetricsRegistry;
  explicit GaugeFamily(prometheus::Family<prometheus::Gauge>* family) : family_(family) {}
  prometheus::Family<prometheus::Gauge>* family_;
};

class HistogramFamily {
 public:
  void Observe(const MetricLabels& labels, double value) const;

 private:
  friend class MetricsRegistry;
  HistogramFamily(prometheus::Family<prometheus::Histogram>* family, std::vector<double> bounds)
      : family_(family), bounds_(std::move(bounds)) {}
  prometheus::Family<prometheus::Histogram>* family_;
  std::vector<double> bounds_;
};

// One value of a family that is computed when it is asked for.
struct MetricSample {
  MetricLabels labels;
  double value = 0;
};
using MetricSamples = std::vector<MetricSample>;

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  CounterFamily AddCounter(const std::string& name, const std::string& help);
  GaugeFamily AddGauge(const std::string& name, const std::string& help);
  // `bounds`: upper edges of the buckets, ascending, with one at each objective.
  HistogramFamily AddHistogram(const std::string& name, const std::string& help, std::vector<double> bounds);
  // Called at each scrape, by the thread that serves it.
  using Sample = std::function<MetricSamples()>;
  void AddComputedGauge(const std::string& name, const std::string& help, Sample sample);
  // For counters whose labels come and go.
  void AddComputedCounter(const std::string& name, const std::string& help, Sample sample);

  // All metrics in Prometheus' text format.
  std::string Text() const;

 private:
  friend class MetricsServer;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Serves /metrics over HTTP until it is destroyed.
class MetricsServer {
 public:
  // `listen` is "host:port", port 0 for a free one. `registry` must outlive the server.
  // Possible errors: those of ListenError.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              MetricsRegistry* registry);
  ~MetricsServer();
  int port() const { return port_; }

 private:
  struct Impl;
  MetricsServer(std::unique_ptr<Impl> impl, int port);
  const std::unique_ptr<Impl> impl_;
  const int port_;
};

}  // namespace penstock
