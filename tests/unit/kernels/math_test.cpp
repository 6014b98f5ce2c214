#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/fp_mode.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using Function = void (*)(const float*, std::size_t, float*);

struct Case {
  const char* name;
  Function Ops::*function;
  double (*exact)(double);
  float low;
  float high;
  double relative_max;  // of error / max(|exact|, floor)
  double floor;
};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double exp_of(double x) {
  return std::exp(x);
}
double log_of(double x) {
  return std::log(x);
}
double sin_of(double x) {
  return std::sin(x);
}
double cos_of(double x) {
  return std::cos(x);
}

constexpr Case kCases[] = {
    {"exp", &Ops::exp, exp_of, -87.3365f, 88.7228f, 8.5e-8, 1e-300},
    {"log", &Ops::log, log_of, 1.2e-38f, 3.4e38f, 8.5e-8, 1.0},
    {"sin", &Ops::sin, sin_of, -65536.0f, 65536.0f, 9.5e-8, 1.0},
    {"cos", &Ops::cos, cos_of, -65536.0f, 65536.0f, 9.5e-8, 1.0},
    {"sigmoid", &Ops::sigmoid, sigmoid, -87.0f, 88.0f, 1.6e-7, 1e-300},
};

// Floats over the whole of [low, high]: every step-th bit pattern.
std::vector<float> sweep(float low, float high, std::uint32_t step) {
  std::vector<float> x;
  const auto add_positive = [&](float from, float to, float sign) {
    for (auto b = std::bit_cast<std::uint32_t>(from); b <= std::bit_cast<std::uint32_t>(to);
         b += step) {
      x.push_back(sign * std::bit_cast<float>(b));
    }
  };
  if (low < 0) {
    add_positive(std::numeric_limits<float>::min(), -low, -1.0f);
    add_positive(std::numeric_limits<float>::min(), high, 1.0f);
  } else {
    add_positive(low, high, 1.0f);
  }
  return x;
}

}  // namespace

TEST_CASE("the polynomials are as near to the exact functions as math.h says") {
  const FpModeScope mode;
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const std::vector<float> x = sweep(c.low, c.high, 2027);
    std::vector<float> y(x.size());
    (ops().*c.function)(x.data(), x.size(), y.data());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = c.exact(double{x[i]});
      const double error = std::abs(double{y[i]} - wanted) / std::max(std::abs(wanted), c.floor);
      worst = std::max(worst, error);
    }
    CHECK(worst <= c.relative_max);
  }
}

TEST_CASE("the polynomials have the same bits on every instruction set") {
  const FpModeScope mode;
  std::vector<float> x = sweep(-kInf, kInf, 99991);
  for (const float special :
       {0.0f, -0.0f, kInf, -kInf, std::nanf(""), 1e-40f, -1e-40f, 88.8f, -87.4f, -104.0f, 1.0f}) {
    x.push_back(special);
  }
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::vector<float> expected(x.size());
    (reference().*c.function)(x.data(), x.size(), expected.data());
    for (const Ops* table : vector_tables()) {
      CAPTURE(table->name);
      std::vector<float> y(x.size());
      (table->*c.function)(x.data(), x.size(), y.data());
      const long at = first_difference(y, expected);
      CAPTURE(at);
      CAPTURE(at < 0 ? 0.0f : x[static_cast<std::size_t>(at)]);
      CHECK(at == -1);
    }
  }
}

TEST_CASE("the polynomials meet their special values exactly") {
  const FpModeScope mode;
  std::vector<const Ops*> tables = vector_tables();
  tables.push_back(&reference());
  for (const Ops* table : tables) {
    const auto one = [&](Function Ops::*f, float x) {
      float y = 0;
      (table->*f)(&x, 1, &y);
      return y;
    };
    CHECK(one(&Ops::exp, 0.0f) == 1.0f);
    CHECK(one(&Ops::exp, -0.0f) == 1.0f);
    CHECK(one(&Ops::exp, -kInf) == 0.0f);
    CHECK(one(&Ops::exp, -1000.0f) == 0.0f);
    CHECK(one(&Ops::exp, kInf) == kInf);
    CHECK(one(&Ops::exp, 1000.0f) == kInf);
    CHECK(std::isnan(one(&Ops::exp, std::nanf(""))));
    CHECK(one(&Ops::log, 1.0f) == 0.0f);
    CHECK(one(&Ops::log, 0.0f) == -kInf);
    CHECK(one(&Ops::log, kInf) == kInf);
    CHECK(std::isnan(one(&Ops::log, -1.0f)));
    CHECK(std::isnan(one(&Ops::log, std::nanf(""))));
    CHECK(one(&Ops::sin, 0.0f) == 0.0f);
    CHECK(one(&Ops::cos, 0.0f) == 1.0f);
    CHECK(std::isnan(one(&Ops::sin, kInf)));
    CHECK(std::isnan(one(&Ops::cos, std::nanf(""))));
    CHECK(one(&Ops::sigmoid, 0.0f) == 0.5f);
    CHECK(one(&Ops::sigmoid, -kInf) == 0.0f);
    CHECK(one(&Ops::sigmoid, kInf) == 1.0f);
    CHECK(std::isnan(one(&Ops::sigmoid, std::nanf(""))));
  }
}

}  // namespace baton::test
