#include "redact/secret_shapes.h"

#include <algorithm>

#include "base/text.h"

namespace rankstacks::redact {
namespace {

enum class Of { kUpper, kAlnum, kWord, kWordDash, kHex, kDotted, kBase64 };

// What a service's keys begin with, what follows, and the least number of characters of that.
struct Prefix {
  std::string_view text;
  Of of;
  std::size_t least;
  std::string_view source;
};

// clang-format off
constexpr Prefix kPrefixes[] = {
    {"AKIA", Of::kUpper, 16, "AWS: access key"},
    {"ASIA", Of::kUpper, 16, "AWS: temporary access key"},
    {"ABIA", Of::kUpper, 16, "AWS: bearer token"},
    {"ACCA", Of::kUpper, 16, "AWS: context key"},
    {"AIza", Of::kWordDash, 30, "Google: API key"},
    {"ya29.", Of::kDotted, 20, "Google: OAuth access token"},
    {"GOCSPX-", Of::kWordDash, 20, "Google: OAuth client secret"},
    {"ghp_", Of::kAlnum, 20, "GitHub: personal token"},
    {"gho_", Of::kAlnum, 20, "GitHub: OAuth token"},
    {"ghu_", Of::kAlnum, 20, "GitHub: app's user token"},
    {"ghs_", Of::kAlnum, 20, "GitHub: app's server token"},
    {"ghr_", Of::kAlnum, 20, "GitHub: refresh token"},
    {"github_pat_", Of::kWord, 20, "GitHub: fine-grained token"},
    {"glpat-", Of::kWordDash, 15, "GitLab: personal token"},
    {"gldt-", Of::kWordDash, 15, "GitLab: deploy token"},
    {"glrt-", Of::kWordDash, 15, "GitLab: runner token"},
    {"glptt-", Of::kWordDash, 15, "GitLab: trigger token"},
    {"glcbt-", Of::kWordDash, 15, "GitLab: job token"},
    {"ATATT3", Of::kWordDash, 20, "Atlassian: API token"},
    {"ATBB", Of::kAlnum, 24, "Bitbucket: app password"},
    {"hf_", Of::kAlnum, 20, "Hugging Face"},
    {"sk-", Of::kWordDash, 20, "OpenAI, Anthropic and others"},
    {"gsk_", Of::kAlnum, 20, "Groq"},
    {"xai-", Of::kAlnum, 20, "xAI"},
    {"r8_", Of::kAlnum, 20, "Replicate"},
    {"nvapi-", Of::kWordDash, 20, "NVIDIA"},
    {"sk_live_", Of::kAlnum, 16, "Stripe"},
    {"sk_test_", Of::kAlnum, 16, "Stripe"},
    {"rk_live_", Of::kAlnum, 16, "Stripe"},
    {"pk_live_", Of::kAlnum, 16, "Stripe"},
    {"xoxb-", Of::kWordDash, 10, "Slack"},
    {"xoxa-", Of::kWordDash, 10, "Slack"},
    {"xoxp-", Of::kWordDash, 10, "Slack"},
    {"xoxr-", Of::kWordDash, 10, "Slack"},
    {"xoxs-", Of::kWordDash, 10, "Slack"},
    {"xapp-", Of::kWordDash, 10, "Slack"},
    {"npm_", Of::kAlnum, 30, "npm"},
    {"pypi-", Of::kWordDash, 40, "PyPI"},
    {"dop_v1_", Of::kHex, 32, "DigitalOcean"},
    {"doo_v1_", Of::kHex, 32, "DigitalOcean"},
    {"SG.", Of::kDotted, 32, "SendGrid"},
    {"key-", Of::kHex, 32, "Mailgun"},
    {"dapi", Of::kHex, 32, "Databricks"},
    {"dckr_pat_", Of::kWordDash, 20, "Docker Hub"},
    {"hvs.", Of::kWordDash, 20, "HashiCorp Vault"},
    {"hvb.", Of::kWordDash, 20, "HashiCorp Vault"},
    {"shpat_", Of::kHex, 32, "Shopify"},
    {"shpss_", Of::kHex, 32, "Shopify"},
    {"tskey-", Of::kWordDash, 16, "Tailscale"},
    {"lin_api_", Of::kAlnum, 20, "Linear"},
    {"figd_", Of::kWordDash, 20, "Figma"},
    {"wandb_v1_", Of::kWordDash, 20, "Weights & Biases"},
    {"AGE-SECRET-KEY-1", Of::kUpper, 30, "age"},
    {"whsec_", Of::kBase64, 24, "Stripe, Svix: secret of a webhook"},
    {"SK", Of::kHex, 32, "Twilio: API key"},
    {"glsa_", Of::kWord, 20, "Grafana: service account"},
    {"glc_eyJ", Of::kBase64, 20, "Grafana Cloud: access policy"},
    {"lsv2_pt_", Of::kWord, 20, "LangSmith: personal token"},
    {"lsv2_sk_", Of::kWord, 20, "LangSmith: service key"},
    {"PMAK-", Of::kWordDash, 20, "Postman"},
    {"NRAK-", Of::kUpper, 20, "New Relic: user key"},
    {"ops_eyJ", Of::kBase64, 40, "1Password: service account"},
    {"sbp_", Of::kHex, 32, "Supabase"},
    {"pscale_tkn_", Of::kWordDash, 20, "PlanetScale"},
    {"dp.pt.", Of::kAlnum, 20, "Doppler"},
    {"pul-", Of::kHex, 32, "Pulumi"},
    {"rubygems_", Of::kHex, 32, "RubyGems"},
    {"dt0c01.", Of::kDotted, 20, "Dynatrace"},
    {"sq0atp-", Of::kWordDash, 20, "Square: access token"},
    {"sq0csp-", Of::kWordDash, 20, "Square: secret"},
    {"LTAI", Of::kAlnum, 16, "Alibaba Cloud: access key"},
    {"AKID", Of::kAlnum, 28, "Tencent Cloud: secret id"},
    {"AQVN", Of::kWordDash, 30, "Yandex Cloud: API key"},
    {"AKCp", Of::kAlnum, 40, "Artifactory: API key"},
    {"pplx-", Of::kAlnum, 30, "Perplexity"},
    {"csk-", Of::kAlnum, 30, "Cerebras"},
    {"tvly-", Of::kWordDash, 20, "Tavily"},
    {"rpa_", Of::kAlnum, 30, "RunPod"},
    {"ntn_", Of::kAlnum, 30, "Notion"},
    {"secret_", Of::kAlnum, 40, "Notion, Lambda"},
};
// clang-format on

bool is_of(Of of, char c) {
  switch (of) {
    case Of::kUpper: return is_upper(c) || is_digit(c);
    case Of::kAlnum: return is_alnum(c);
    case Of::kWord: return is_alnum(c) || c == '_';
    case Of::kWordDash: return is_alnum(c) || c == '_' || c == '-';
    case Of::kHex: return is_hex(c);
    case Of::kDotted: return is_alnum(c) || c == '_' || c == '-' || c == '.';
    case Of::kBase64: return is_alnum(c) || c == '+' || c == '/' || c == '=' || c == '_' || c == '-';
  }
  return false;
}

// The number of characters of this kind at the start of the text.
std::size_t run_of(Of of, std::string_view text) {
  constexpr std::size_t kLongest = 16 << 10;
  text = text.substr(0, kLongest);
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), [&](char c) { return is_of(of, c); }) -
                                  text.begin());
}

// RFC 7519: three parts in base64url; the first is a JSON object, so it begins with `{"`.
std::size_t json_web_token(std::string_view text) {
  if (!text.starts_with("eyJ")) return 0;
  const std::size_t head = run_of(Of::kWordDash, text);
  if (head < 10 || head >= text.size() || text[head] != '.') return 0;
  return head + run_of(Of::kDotted, text.substr(head));
}

// RFC 7468. A key that is cut off goes to the end of the text.
std::size_t private_key(std::string_view text) {
  if (!text.starts_with("-----BEGIN ")) return 0;
  const std::size_t label_end = text.find("-----", 11);
  constexpr std::size_t kLongestLabel = 64;
  const std::string_view label = text.substr(11, std::min(label_end, 11 + kLongestLabel) - 11);
  if (!contains(label, "PRIVATE KEY")) return 0;
  const std::size_t end = text.find("-----END ");
  if (end == std::string_view::npos) return text.size();
  const std::size_t after = text.find("-----", end + 9);
  return after == std::string_view::npos ? text.size() : after + 5;
}

int class_of(char c) { return is_digit(c) ? 0 : is_lower(c) ? 1 : is_upper(c) ? 2 : 3; }

struct Mixture {
  std::size_t digits = 0, lower = 0, upper = 0, hex = 0, pairs = 0, changes = 0;
  double rate() const { return pairs == 0 ? 0 : static_cast<double>(changes) / static_cast<double>(pairs); }
};

Mixture mixture_of(std::string_view token) {
  Mixture found;
  for (std::size_t i = 0; i < token.size(); ++i) {
    found.digits += is_digit(token[i]), found.lower += is_lower(token[i]), found.upper += is_upper(token[i]);
    found.hex += is_hex(token[i]);
    if (i == 0 || !is_alnum(token[i]) || !is_alnum(token[i - 1])) continue;
    ++found.pairs;
    found.changes += class_of(token[i]) != class_of(token[i - 1]);
  }
  return found;
}

// What the keys of a service have at a fixed place behind some characters of their own.
std::size_t secret_by_infix(std::string_view text) {
  // Microsoft Entra ID: three characters, "8Q~" (or another digit), 31 to 34 more. Telegram: a bot's number, ":AA", 33
  // more.
  constexpr std::size_t kEntraLeast = 31, kTelegramLeast = 32;
  const auto of_entra = [](char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.' || c == '~'; };
  if (text.size() > 6 && is_digit(text[3]) && text[4] == 'Q' && text[5] == '~' &&
      std::all_of(text.begin(), text.begin() + 3, of_entra)) {
    const std::string_view rest = text.substr(6);
    const auto length = static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), of_entra) - rest.begin());
    if (length >= kEntraLeast) return 6 + length;
  }
  const std::size_t number =
      static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
  if (number < 8 || number > 10 || !text.substr(number).starts_with(":AA")) return 0;
  const std::size_t length = run_of(Of::kWordDash, text.substr(number + 1));
  return length >= kTelegramLeast ? number + 1 + length : 0;
}

// "sk-learn-like-names-of-things" are words; a key has a digit, or changes its case like nothing that people write.
bool is_of_key(std::string_view rest) {
  constexpr double kChangesOfKeys = 0.4;
  if (std::any_of(rest.begin(), rest.end(), is_digit)) return true;
  const Mixture found = mixture_of(rest);
  return found.lower > 0 && found.upper > 0 && found.rate() >= kChangesOfKeys;
}

}  // namespace

std::size_t secret_by_prefix(std::string_view text) {
  if (const std::size_t length = private_key(text)) return length;
  if (const std::size_t length = json_web_token(text)) return length;
  for (const Prefix& prefix : kPrefixes) {
    if (!text.starts_with(prefix.text)) continue;
    const std::size_t length = run_of(prefix.of, text.substr(prefix.text.size()));
    if (length < prefix.least) continue;
    if (prefix.of == Of::kUpper || is_of_key(text.substr(prefix.text.size(), length)))
      return prefix.text.size() + length;
  }
  return secret_by_infix(text);
}

std::size_t cut_secret(std::string_view text) {
  constexpr std::size_t kTellingPrefix = 5, kLeast = 3;
  if (text.starts_with("eyJ") && run_of(Of::kDotted, text) == text.size() && text.size() >= kLeast + 3)
    return text.size();
  for (const Prefix& prefix : kPrefixes) {
    if (!text.starts_with(prefix.text)) continue;
    const std::string_view rest = text.substr(prefix.text.size());
    if (rest.size() < kLeast || run_of(prefix.of, rest) != rest.size()) continue;
    if (prefix.text.size() >= kTellingPrefix || is_of_key(rest)) return text.size();
  }
  const bool entra = text.size() > 6 && is_digit(text[3]) && text.substr(4, 2) == "Q~";
  const std::size_t colon = text.find(":AA");
  const bool telegram =
      colon != std::string_view::npos && colon >= 8 && std::all_of(text.begin(), text.begin() + colon, is_digit);
  if (entra || telegram) return text.size();
  constexpr double kChangesOfRandom = 0.5;
  const Mixture found = mixture_of(text);
  const bool random = found.lower + found.upper + found.digits == text.size() && found.lower > 0 && found.upper > 0 &&
                      found.rate() >= kChangesOfRandom;
  return random ? text.size() : 0;
}

bool starts_with_uuid(std::string_view text) {
  constexpr std::size_t kLength = 36;
  if (text.size() < kLength) return false;
  for (std::size_t i = 0; i < kLength; ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !is_hex(text[i])) return false;
  }
  return text.size() == kLength || !is_alnum(text[kLength]);
}

bool looks_random(std::string_view token, bool in_name) {
  constexpr std::size_t kLeast = 24, kLeastHex = 32;
  // Of random base62 characters 62 % differ in class from the one before, of random hex digits 47 %; in names written
  // by people, CamelCase and numbers included, up to 35 %.
  constexpr double kChangesOfMixed = 0.4, kChangesOfNames = 0.45, kChangesOfLower = 0.3;
  constexpr std::size_t kUuid = 36;
  if (token.size() < kLeast || token.starts_with("_Z")) return false;
  if (starts_with_uuid(token.substr(token.size() - std::min(token.size(), kUuid)))) return false;  // "GPU-1b2c3d4e-..."
  const Mixture found = mixture_of(token);
  const bool mixed = found.digits > 0 && found.lower > 0 && found.upper > 0;
  if (in_name) return mixed && found.rate() >= kChangesOfNames;
  if (mixed && found.rate() >= kChangesOfMixed) return true;
  if (token.size() < kLeastHex || found.digits == 0 || found.lower + found.upper == 0) return false;
  const std::size_t letters_and_digits = found.digits + found.lower + found.upper;
  if (letters_and_digits != token.size()) return false;
  return found.hex == token.size() || (found.upper == 0 && found.rate() >= kChangesOfLower);
}

bool looks_like_aws_secret_key(std::string_view text) {
  // Less than of other tokens, since the length is exact and names written by people have '.', '_' or '-' in 40
  // characters; a path has slashes at one end, or none of the signs of base64 in its directories.
  constexpr double kChanges = 0.3;
  if (text.size() != kAwsSecretKey) return false;
  if (!std::all_of(text.begin(), text.end(), [](char c) { return is_alnum(c) || c == '+' || c == '/'; })) return false;
  const Mixture found = mixture_of(text);
  if (found.digits == 0 || found.lower == 0 || found.upper == 0) return false;
  return found.rate() >= (text.starts_with('/') ? kChanges + 0.1 : kChanges);
}

std::size_t length_before_webhook_secret(std::string_view text) {
  // Documentation of Slack, Discord, Microsoft Teams, Zapier, IFTTT, Feishu, WeCom, PagerDuty.
  for (const std::string_view begin :
       {"hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/",
        "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "webhook.office.com/webhookb2/",
        "outlook.office.com/webhook/", "IncomingWebhook/", "hooks.zapier.com/hooks/catch/", "maker.ifttt.com/trigger/",
        "open.feishu.cn/open-apis/bot/v2/hook/", "open.larksuite.com/open-apis/bot/v2/hook/",
        "qyapi.weixin.qq.com/cgi-bin/webhook/send?key=", "events.pagerduty.com/integration/"})
    if (text.starts_with(begin)) return begin.size();
  return 0;
}

}  // namespace rankstacks::redact
