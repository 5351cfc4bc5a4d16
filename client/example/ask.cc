// SPDX-License-Identifier: Apache-2.0
// ask HOST:PORT QUESTION: streams the answer of a Baton router, for 30 seconds
// at most; Ctrl-C ends it together with the program.
#include <baton/client.h>

#include <chrono>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: ask HOST:PORT QUESTION\n";
    return 2;
  }
  baton::ClientOptions options;
  options.router = argv[1];
  const auto client = baton::Client::Connect(options);

  baton::Request request;
  request.messages = {{"user", argv[2]}};
  request.max_tokens = 100;
  request.deadline = std::chrono::seconds(30);
  const baton::Result result = client->Generate(request, [](const baton::TokenEvent& event) {
    std::cout << event.text << std::flush;
    return true;  // false would cancel
  });
  std::cout << "\n";
  if (!result.status.ok()) {
    std::cerr << baton::StatusCodeName(result.status.code) << ": " << result.status.message << "\n";
    return 1;
  }
  std::cerr << result.completion_tokens << " tokens, the first after " << result.timing.first_token
            << " ms, from " << result.decode_worker << "\n";
  return 0;
}
