// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/number_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton::grammar {
namespace {

constexpr int64_t kMostInteger = 9999999999999999;  // 16 digits
constexpr double kMostNumber = 999999999;
constexpr size_t kFractionDigits = 6;
constexpr size_t kMostBoundDigits = 15;

ExprPtr Digit(char first = '0', char last = '9') {
  if (first > last) return Nothing();
  return Class(CharSet::Of({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}}));
}

ExprPtr AnyDigits(size_t min, size_t max) {
  return Repeat(Digit(), static_cast<uint32_t>(min), static_cast<uint32_t>(max));
}

char After(char digit) { return static_cast<char>(digit + 1); }
char Before(char digit) { return static_cast<char>(digit - 1); }

// As many digits as `low`, from its value on.
ExprPtr AtLeast(std::string_view low) {
  if (low.empty()) return Text("");
  return Choice({Sequence({Text(low.substr(0, 1)), AtLeast(low.substr(1))}),
                 Sequence({Digit(After(low[0]), '9'), AnyDigits(low.size() - 1, low.size() - 1)})});
}

ExprPtr AtMost(std::string_view high) {
  if (high.empty()) return Text("");
  return Choice(
      {Sequence({Digit('0', Before(high[0])), AnyDigits(high.size() - 1, high.size() - 1)}),
       Sequence({Text(high.substr(0, 1)), AtMost(high.substr(1))})});
}

// REQUIRES: equal lengths, low <= high.
ExprPtr Between(std::string_view low, std::string_view high) {
  if (low.empty()) return Text("");
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return Sequence({Text(low.substr(0, 1)), Between(low_rest, high_rest)});
  }
  return Choice({Sequence({Text(low.substr(0, 1)), AtLeast(low_rest)}),
                 Sequence({Digit(After(low[0]), Before(high[0])),
                           AnyDigits(low_rest.size(), low_rest.size())}),
                 Sequence({Text(high.substr(0, 1)), AtMost(high_rest)})});
}

// Integers from 0 on, without leading zeros.
ExprPtr Integers(int64_t low, int64_t high) {
  std::vector<ExprPtr> choices;
  while (low <= high) {
    const std::string first = absl::StrCat(low);
    const std::string nines(first.size(), '9');
    const std::string last = absl::StrCat(high).size() == first.size() ? absl::StrCat(high) : nines;
    choices.push_back(Between(first, last));
    low = std::stoll(last) + 1;
  }
  return Choice(std::move(choices));
}

// A number from 0 on as digits before and behind the point.
struct Decimal {
  int64_t integer = 0;
  std::string fraction = {};  // without zeros at its end
  bool exclusive = false;

  char digit(size_t at) const { return at < fraction.size() ? fraction[at] : '0'; }
  bool zero_from(size_t at) const { return at >= fraction.size(); }
};

Decimal DecimalOf(double value, bool exclusive) {
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t point = text.find('.');
  Decimal decimal;
  decimal.exclusive = exclusive;
  std::from_chars(text.data(), text.data() + std::min(point, text.size()), decimal.integer);
  if (point != std::string_view::npos) decimal.fraction = text.substr(point + 1);
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  return decimal;
}

// The digits behind a point, where those before equal the bounds' that are given.
class Fraction {
 public:
  Fraction(const Decimal* low, const Decimal* high, size_t digits)
      : low_(low), high_(high), digits_(digits) {}

  // Nothing, or a point and digits.
  ExprPtr Build() const {
    const ExprPtr none = MayEnd(0, low_, high_) ? Text("") : Nothing();
    return Choice({none, Sequence({Text("."), From(0, low_, high_)})});
  }

 private:
  // Whether what stands before `at` is in the range. A bound that is null was passed.
  bool MayEnd(size_t at, const Decimal* low, const Decimal* high) const {
    const bool above = low == nullptr || (low->zero_from(at) && !low->exclusive);
    const bool below = high == nullptr || !high->zero_from(at) || !high->exclusive;
    return above && below;
  }

  ExprPtr From(size_t at, const Decimal* low, const Decimal* high) const {
    ExprPtr end = at > 0 && MayEnd(at, low, high) ? Text("") : Nothing();
    if (at == digits_) return end;
    if (low == nullptr && high == nullptr) return AnyDigits(at > 0 ? 0 : 1, digits_ - at);
    const char least = low == nullptr ? '0' : low->digit(at);
    const char most = high == nullptr ? '9' : high->digit(at);
    if (least > most) return end;
    const auto step = [&](char first, char last) {
      if (first > last) return Nothing();
      return Sequence(
          {Digit(first, last), From(at + 1, low != nullptr && first == least ? low : nullptr,
                                    high != nullptr && last == most ? high : nullptr)});
    };
    std::vector<ExprPtr> choices{end};
    const bool low_border = low != nullptr, high_border = high != nullptr;
    if (low_border && high_border && least == most) {
      choices.push_back(step(least, most));
      return Choice(std::move(choices));
    }
    if (low_border) choices.push_back(step(least, least));
    const char first = low_border ? After(least) : least;
    const char last = high_border ? Before(most) : most;
    if (first <= last) {
      choices.push_back(Sequence({Digit(first, last), From(at + 1, nullptr, nullptr)}));
    }
    if (high_border) choices.push_back(step(most, most));
    return Choice(std::move(choices));
  }

  const Decimal* const low_;
  const Decimal* const high_;
  const size_t digits_;
};

// Numbers from 0 on. REQUIRES: low <= high.
ExprPtr Decimals(const Decimal& low, const Decimal& high, size_t digits) {
  const auto with = [&](int64_t integer, const Decimal* from, const Decimal* to) {
    return Sequence({Text(absl::StrCat(integer)), Fraction(from, to, digits).Build()});
  };
  if (low.integer == high.integer) return with(low.integer, &low, &high);
  return Choice({with(low.integer, &low, nullptr),
                 Sequence({Integers(low.integer + 1, high.integer - 1),
                           Fraction(nullptr, nullptr, digits).Build()}),
                 with(high.integer, nullptr, &high)});
}

absl::Status NoneIn() {
  return absl::InvalidArgumentError("no number that can be written lies between the bounds");
}

}  // namespace

absl::StatusOr<ExprPtr> IntegersIn(const NumberRange& range) {
  constexpr auto kMost = static_cast<double>(kMostInteger);
  int64_t low = -kMostInteger, high = kMostInteger;
  if (range.low) {
    const double least =
        range.low->exclusive ? std::floor(range.low->value) + 1 : std::ceil(range.low->value);
    if (!(least <= kMost)) return NoneIn();
    low = std::max(low, static_cast<int64_t>(std::max(least, -kMost)));
  }
  if (range.high) {
    const double most =
        range.high->exclusive ? std::ceil(range.high->value) - 1 : std::floor(range.high->value);
    if (!(most >= -kMost)) return NoneIn();
    high = std::min(high, static_cast<int64_t>(std::min(most, kMost)));
  }
  if (low > high) return NoneIn();
  std::vector<ExprPtr> choices{Integers(std::max<int64_t>(low, 0), high)};
  if (low < 0) {
    choices.push_back(Sequence({Text("-"), Integers(std::max<int64_t>(1, -high), -low)}));
  }
  return Choice(std::move(choices));
}

absl::StatusOr<ExprPtr> NumbersIn(const NumberRange& range) {
  const NumberBound low = range.low.value_or(NumberBound{-kMostNumber});
  const NumberBound high = range.high.value_or(NumberBound{kMostNumber});
  if (!(std::abs(low.value) <= kMostNumber) || !(std::abs(high.value) <= kMostNumber)) {
    return absl::InvalidArgumentError(absl::StrCat("bounds of numbers must be within ",
                                                   static_cast<int64_t>(kMostNumber),
                                                   "; those of integers may be larger"));
  }
  if (low.value > high.value) return NoneIn();
  const Decimal low_digits = DecimalOf(std::abs(low.value), low.exclusive);
  const Decimal high_digits = DecimalOf(std::abs(high.value), high.exclusive);
  const size_t fraction =
      std::max({kFractionDigits, low_digits.fraction.size(), high_digits.fraction.size()});
  const size_t before = absl::StrCat(std::max(low_digits.integer, high_digits.integer)).size();
  if (fraction + before > kMostBoundDigits) {
    return absl::InvalidArgumentError(
        absl::StrCat("a bound has too many digits; ", kMostBoundDigits, " can be kept apart"));
  }
  const Decimal zero;
  std::vector<ExprPtr> choices;
  if (high.value >= 0) {
    choices.push_back(Decimals(low.value >= 0 ? low_digits : zero, high_digits, fraction));
  }
  if (low.value < 0) {
    const Decimal above_zero{.exclusive = true};
    choices.push_back(Sequence(
        {Text("-"), Decimals(high.value < 0 ? high_digits : above_zero, low_digits, fraction)}));
  }
  const ExprPtr all = Choice(std::move(choices));
  if (all->kind == ExprKind::kNothing) return NoneIn();
  return all;
}

}  // namespace baton::grammar
