// For tests with a database of their own on a PostgreSQL server that all tests of the program share. They are
// skipped, with the reason, where there is no PostgreSQL.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/postgres_server.h"

namespace penstock {

class PostgresFixture : public ::testing::Test {
 protected:
  // A derived SetUp calls this first, and goes on where there is a server.
  void SetUp() override {
    if (const auto reason = PostgresServer::WhyNot()) GTEST_SKIP() << *reason;
    server_ = PostgresServer::Shared();
    ASSERT_NE(server_, nullptr);
    database_ = server_->NewDatabase();
    url_ = server_->Url(database_);
  }

  std::string Sql(const std::string& sql) const { return server_->Sql(database_, sql); }

  // Null: the test is skipped, or has failed.
  PostgresServer* server_ = nullptr;
  std::string database_;
  std::string url_;
};

}  // namespace penstock
