// Takes secrets out of texts, by their shape (secret_shapes.h) and by the name of the variable or option that holds
// them. Applied to every format, unless --with-secrets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::redact {

inline constexpr std::string_view kSecret = "<token>";

// What a text is, which decides how much of it may look random.
enum class Text {
  kWords,  // sentences, arguments, targets of descriptors
  kName,   // functions, threads, kernels
  kPath,   // of a module or source file
};

// "API_KEY", "--hf-token", "password": whether the value of a variable or option of this name is a secret, given that
// it is `value`. "--max-tokens 4096", "pad_token_id=0" and "PWD=/home/u" are not.
bool names_a_secret(std::string_view name, std::string_view value);

// "curl -H Authorization: Bearer abc" -> "... Bearer <token>", "https://u:p@host/" -> "https://<token>@host/",
// "token=abc" -> "token=<token>".
std::string without_secrets(std::string_view text, Text kind);

// Of the name of a thread, of which the kernel keeps 15 bytes: a secret may be cut there.
std::string without_cut_secrets(std::string_view name);

// The same for the words of a command line, where an option and its value are two words (command_secrets.h).
std::vector<std::string> without_secrets(std::vector<std::string> words);

}  // namespace rankstacks::redact
