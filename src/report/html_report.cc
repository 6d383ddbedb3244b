#include "report/html_report.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "report/html_data.h"
#include "report/report.h"

namespace rankstacks::report {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

// "require-trusted-types-for": where a browser knows it, not even the page's own script can make HTML of a text.
std::string policy() {
  return fmt::format(
      "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'; trusted-types 'none'",
      html_source_hash(kHtmlScript), html_source_hash(kHtmlStyle));
}

}  // namespace

std::string html_source_hash(std::string_view text) {
  const Sha256 hash = sha256(text);
  return "sha256-" + base64({reinterpret_cast<const char*>(hash.data()), hash.size()});
}

std::string html_report(const JobSnapshot& job, const analyzers::Analysis& analysis, const HtmlOptions& options) {
  const std::string data = html_data(job, analysis, options.redacted);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<title>rankstacks report</title>\n<style>",
      policy());
  page.append(kHtmlStyle).append("</style>\n</head>\n").append(kHtmlBody);
  page += fmt::format("<noscript><pre>{}</pre></noscript>\n", escaped(text_report(job, analysis, {.width = 120})));
  page += "<script type=\"application/json\" id=\"report\">";
  page.append(data).append("</script>\n<script>").append(kHtmlScript).append("</script>\n</body>\n</html>\n");
  return page;
}

}  // namespace rankstacks::report
