#include "common/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <utility>

#include "common/net/listening.h"
#include "common/sync/sync.h"

namespace penstock {
namespace {

struct ComputedFamily {
  std::string name;
  std::string help;
  prometheus::MetricType type = prometheus::MetricType::Gauge;
  MetricsRegistry::Sample sample;
};

prometheus::ClientMetric ToClientMetric(prometheus::MetricType type, const MetricSample& sample) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = sample.value;
  return metric;
}

class ComputedFamilies final : public prometheus::Collectable {
 public:
  void Add(ComputedFamily family) {
    MutexLock lock(&mutex_);
    families_.push_back(std::move(family));
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<ComputedFamily> computed;
    {
      MutexLock lock(&mutex_);
      computed = families_;
    }
    std::vector<prometheus::MetricFamily> families;
    for (const ComputedFamily& one : computed) {
      prometheus::MetricFamily& family = families.emplace_back();
      family.name = one.name;
      family.help = one.help;
      family.type = one.type;
      for (const MetricSample& sample : one.sample())
        family.metric.push_back(ToClientMetric(one.type, sample));
    }
    return families;
  }

 private:
  mutable Mutex mutex_;
  std::vector<ComputedFamily> families_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

struct MetricsRegistry::Impl {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::shared_ptr<ComputedFamilies> computed = std::make_shared<ComputedFamilies>();
};

struct MetricsServer::Impl {
  // Who says nothing, or says it slowly, holds a thread until the time is over: scrapes need others.
  explicit Impl(const std::string& listen)
      : exposer(std::vector<std::string>{"listening_ports", listen, "num_threads", "64", "request_timeout_ms",
                                         "500", "max_request_size", "16384"}) {}
  prometheus::Exposer exposer;
};

void CounterFamily::Increment(const MetricLabels& labels, double amount) const {
  family_->Add(labels).Increment(amount);
}

void GaugeFamily::Set(const MetricLabels& labels, double value) const { family_->Add(labels).Set(value); }

void HistogramFamily::Observe(const MetricLabels& labels, double value) const {
  family_->Add(labels, bounds_).Observe(value);
}

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

CounterFamily MetricsRegistry::AddCounter(const std::string& name, const std::string& help) {
  return CounterFamily(&prometheus::BuildCounter().Name(name).Help(help).Register(*impl_->registry));
}

GaugeFamily MetricsRegistry::AddGauge(const std::string& name, const std::string& help) {
  return GaugeFamily(&prometheus::BuildGauge().Name(name).Help(help).Register(*impl_->registry));
}

HistogramFamily MetricsRegistry::AddHistogram(const std::string& name, const std::string& help,
                                              std::vector<double> bounds) {
  return HistogramFamily(&prometheus::BuildHistogram().Name(name).Help(help).Register(*impl_->registry),
                         std::move(bounds));
}

void MetricsRegistry::AddComputedGauge(const std::string& name, const std::string& help, Sample sample) {
  impl_->computed->Add({name, help, prometheus::MetricType::Gauge, std::move(sample)});
}

void MetricsRegistry::AddComputedCounter(const std::string& name, const std::string& help, Sample sample) {
  impl_->computed->Add({name, help, prometheus::MetricType::Counter, std::move(sample)});
}

std::string MetricsRegistry::Text() const {
  std::vector<prometheus::MetricFamily> families = impl_->registry->Collect();
  for (prometheus::MetricFamily& family : impl_->computed->Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl, int port) : impl_(std::move(impl)), port_(port) {}
MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    MetricsRegistry* registry) {
  try {
    auto impl = std::make_unique<Impl>(listen);
    impl->exposer.RegisterCollectable(registry->impl_->registry);
    impl->exposer.RegisterCollectable(registry->impl_->computed);
    const std::vector<int> ports = impl->exposer.GetListeningPorts();
    const int port = ports.empty() ? 0 : ports.front();
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl), port));
  } catch (const std::exception&) {
    // It says no more than that it failed.
    return ListenError(listen);
  }
}

}  // namespace penstock
