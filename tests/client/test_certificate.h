// SPDX-License-Identifier: Apache-2.0
// A certificate made on the spot.
#pragma once

#include <string>

namespace baton::testing {

// Signed by itself, for 127.0.0.1, valid for a day; its own authority.
struct TestCertificate {
  std::string certificate_pem, key_pem;
};

TestCertificate MakeTestCertificate();

}  // namespace baton::testing
