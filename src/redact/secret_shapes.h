// Secrets that are recognised by how they look: keys of clouds, forges and services, by their prefixes; tokens that
// look random. Pure functions of the text, in time proportional to its length (no regular expressions: the text is
// untrusted).
#pragma once

#include <cstddef>
#include <string_view>

namespace rankstacks::redact {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_alnum(char c) { return is_digit(c) || is_lower(c) || is_upper(c); }
inline bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The length of the secret that begins at the start of `text`, by its prefix ("ghp_...", "AKIA..."), as a JWT, or as a
// private key in PEM; 0: none does.
std::size_t secret_by_prefix(std::string_view text);

// The same where `text` is the rest of a name that was cut, as the kernel cuts the names of threads: less of the secret
// is enough if it goes to the end.
std::size_t cut_secret(std::string_view text);

// "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" at the start of `text`: names of GPUs, pods, boots. Not a secret by its shape.
bool starts_with_uuid(std::string_view text);

// Whether a token looks random: long, of upper and lower case letters and digits that change all the time, or of many
// hex digits. `in_name`: of the name of a function or file, where only the first of these counts, since mangled names,
// kernels' names and hashes of caches are long as well.
bool looks_random(std::string_view token, bool in_name);

// 40 characters of base64, some of them perhaps slashes: the secret that belongs to an access key of AWS.
inline constexpr std::size_t kAwsSecretKey = 40;
bool looks_like_aws_secret_key(std::string_view text);

// The address of a webhook is a secret, from this place on: "IncomingWebhook/", "hooks.slack.com/services/" at the
// start of `text`; 0: none begins there.
std::size_t length_before_webhook_secret(std::string_view text);

}  // namespace rankstacks::redact
