// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/formats.h"

namespace baton::grammar {
namespace {

// February has 28 days here, so that no date is wrong.
#define BATON_DATE                                                 \
  "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])" \
  "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define BATON_TIME                                               \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?" \
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BATON_OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define BATON_LABEL "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
#define BATON_HOST BATON_LABEL "(?:\\." BATON_LABEL "){0,4}"

struct Format {
  std::string_view name, pattern;
};

constexpr Format kFormats[] = {
    {"date", BATON_DATE},
    {"time", BATON_TIME},
    {"date-time", BATON_DATE "T" BATON_TIME},
    {"duration",
     "P(?:[0-9]{1,4}[YMWD]|(?:[0-9]{1,3}D)?T[0-9]{1,2}(?:[HMS]|H[0-9]{1,2}M|M[0-9]{1,2}S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[A-Za-z0-9_-]{1,32}(?:[.+][A-Za-z0-9_-]{1,32}){0,3}@" BATON_LABEL
              "(?:\\." BATON_LABEL "){0,2}\\.[a-z]{2,12}"},
    {"hostname", BATON_HOST},
    {"ipv4", BATON_OCTET "\\." BATON_OCTET "\\." BATON_OCTET "\\." BATON_OCTET},
    {"ipv6", "[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}"},
    {"uri", "https?://" BATON_HOST "(?::[1-9][0-9]{0,3})?(?:/[A-Za-z0-9._~-]{1,64}){0,8}/?"
            "(?:\\?[A-Za-z0-9._~=&-]{1,128})?"}};

}  // namespace

std::optional<std::string_view> FormatPattern(std::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return std::nullopt;
}

}  // namespace baton::grammar
