// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/number_range.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/grammar/automaton.h"

namespace baton::grammar {
namespace {

class Numbers {
 public:
  explicit Numbers(const absl::StatusOr<ExprPtr>& expr) {
    empty_ = !expr.ok();
    if (empty_) return;
    program_ = *MakeProgram({{*expr}, 0});
    automaton_ = std::make_unique<Automaton>(&program_, Automaton::Limits());
  }
  bool operator()(const std::string& text) {
    if (empty_) return false;
    StateId state = automaton_->start();
    for (const char c : text) state = automaton_->Next(state, static_cast<uint8_t>(c));
    return automaton_->Accepts(state);
  }

 private:
  bool empty_ = false;
  Program program_;
  std::unique_ptr<Automaton> automaton_;
};

bool Inside(const NumberRange& range, double value) {
  if (range.low &&
      (value < range.low->value || (range.low->exclusive && value == range.low->value))) {
    return false;
  }
  return !range.high ||
         !(value > range.high->value || (range.high->exclusive && value == range.high->value));
}

NumberRange RandomRange(std::mt19937& random, double scale, bool whole) {
  const auto value = [&] {
    const auto number = static_cast<double>(static_cast<int>(random() % 4001) - 2000) / scale;
    return whole && random() % 4 != 0 ? std::floor(number) : number;
  };
  NumberRange range;
  if (random() % 5 != 0) range.low = NumberBound{value(), random() % 2 == 0};
  if (random() % 5 != 0) range.high = NumberBound{value(), random() % 2 == 0};
  return range;
}

TEST(NumberRange, IntegersAreThoseBetweenTheBounds) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const NumberRange range = RandomRange(random, 1 << random() % 8, true);
    Numbers numbers(IntegersIn(range));
    for (int value = -2100; value <= 2100; value += 1 + static_cast<int>(random() % 5)) {
      ASSERT_EQ(numbers(absl::StrCat(value)), Inside(range, value))
          << value << " in " << (range.low ? range.low->value : -1e9) << " to "
          << (range.high ? range.high->value : 1e9);
    }
    EXPECT_FALSE(numbers("00"));
    EXPECT_FALSE(numbers("-0"));
    EXPECT_FALSE(numbers(""));
  }
}

TEST(NumberRange, DecimalsAreThoseBetweenTheBounds) {
  std::mt19937 random(2);
  int inside = 0;
  for (int round = 0; round < 400; ++round) {
    const NumberRange range = RandomRange(random, 100, false);
    Numbers numbers(NumbersIn(range));
    for (int i = 0; i < 200; ++i) {
      const int digits = static_cast<int>(random() % 4);
      const double value = static_cast<double>(static_cast<int>(random() % 5001) - 2500) / 100;
      const std::string text = absl::StrFormat("%.*f", digits, value);
      const double written = std::stod(text);
      if (written == 0 && text[0] == '-') continue;
      ASSERT_EQ(numbers(text), Inside(range, written))
          << text << " in " << (range.low ? range.low->value : -1e9) << " to "
          << (range.high ? range.high->value : 1e9);
      inside += Inside(range, written) ? 1 : 0;
    }
  }
  EXPECT_GT(inside, 1000);
}

TEST(NumberRange, LargeBoundsAreClippedOrRefused) {
  Numbers all(IntegersIn({.low = NumberBound{-1e300}, .high = NumberBound{1e300}}));
  EXPECT_TRUE(all("9999999999999999"));
  EXPECT_FALSE(all("10000000000000000"));
  EXPECT_FALSE(IntegersIn({.low = NumberBound{1e17}, .high = {}}).ok());
  EXPECT_FALSE(NumbersIn({.low = NumberBound{1e12}, .high = {}}).ok());
  EXPECT_FALSE(NumbersIn({.low = NumberBound{3}, .high = NumberBound{2}}).ok());
  EXPECT_FALSE(NumbersIn({.low = NumberBound{2, true}, .high = NumberBound{2}}).ok());
  EXPECT_FALSE(IntegersIn({.low = NumberBound{0.2}, .high = NumberBound{0.8}}).ok());
}

}  // namespace
}  // namespace baton::grammar
