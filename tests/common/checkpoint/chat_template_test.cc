// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

TEST(ChatTemplate, ChatMlBringsItsDefaultSystemMessage) {
  const auto format = RecognizeChatTemplate(
      "{% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system\n' + messages[0]['content'] "
      "+ '<|im_end|>' }}{% else %}{{ '<|im_start|>system\nYou are kind.<|im_end|>\n' }}{% endif %}",
      "t");
  ASSERT_TRUE(format.ok());
  EXPECT_EQ(format->name, "chatml");
  EXPECT_EQ(format->options.default_system, "You are kind.");
}

TEST(ChatTemplate, NewlineMayBeSpelledOut) {
  EXPECT_EQ(RecognizeChatTemplate(R"({{ '<|im_start|>system\nBe brief.<|im_end|>\n' }})", "t")
                ->options.default_system,
            "Be brief.");
}

TEST(ChatTemplate, ChatMlWithoutADefaultHasNone) {
  EXPECT_EQ(RecognizeChatTemplate("{{'<|im_start|>' + message['role'] + '<|im_end|>'}}", "t")
                ->options.default_system,
            "");
}

TEST(ChatTemplate, OtherFormatsAreToldByTheirMarkers) {
  EXPECT_EQ(RecognizeChatTemplate("[INST] <<SYS>>\\n", "t")->name, "llama2");
  EXPECT_EQ(RecognizeChatTemplate("{{ '[gMASK]sop' }}<|user|>", "t")->name, "chatglm3");
  EXPECT_EQ(RecognizeChatTemplate("[gMASK]sop[Round {{ i }}]\n\n问：", "t")->name, "chatglm2");
}

TEST(ChatTemplate, UnknownOnesListTheNames) {
  // Mistral's, Llama 3's, GLM-4's.
  for (const char* text :
       {"[INST] {{ content }} [/INST]", "<|start_header_id|>system", "[gMASK]<sop><|user|>"}) {
    const auto format = RecognizeChatTemplate(text, "the-file");
    EXPECT_EQ(format.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(format.status().message()),
                ::testing::AllOf(HasSubstr("the-file"),
                                 HasSubstr("chatglm2, chatglm3, chatml, llama2, raw")));
  }
}

TEST(ChatTemplate, GgufWithAnUnknownTemplateOpensButNamesTheChoices) {
  GgufBuilder builder = TinyLlamaKeys();
  builder.String("tokenizer.chat_template", "{{ unheard of }}");
  AddTinyLlamaTensors(builder);
  const TempFolder folder;
  const auto opened = OpenCheckpoint(folder.Write("m.gguf", builder.Build()));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(std::string((*opened)->DetectChatFormat().status().message()), HasSubstr("llama2"));
}

}  // namespace
}  // namespace baton::checkpoint
