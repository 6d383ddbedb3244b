#include <fmt/format.h>
#include <cctype>
#include <sstream>

#include "packaging/command_line_docs.h"
#include "packaging/described_command.h"

namespace rankstacks::packaging {
namespace {

// Escapes text for troff: dashes stay dashes that can be copied into a shell, and no line begins like a request.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool line_begins = out.empty() || out.back() == '\n';
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '-') out += "\\-";
    else if (c == '\\') out += "\\e";
    else if (c == '\'') out += "\\(aq";
    else if (c == '"') out += "\\(dq";
    else if (c == '^') out += "\\(ha";
    else if (c == '~') out += "\\(ti";
    else out += c;
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// One paragraph: for troff a line break is only a blank.
std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

std::string option_heading(const DescribedOption& option) {
  std::string names;
  for (const std::string& name : option.names) {
    if (!names.empty()) names += ", ";
    names += (option.positional ? "\\fI" : "\\fB") + escaped(name) + "\\fR";
  }
  if (option.positional) return names + (option.repeats ? "..." : "");
  if (!option.takes_value) return names;
  if (option.choices.empty()) return names + " \\fI" + escaped(option.value) + "\\fR";
  std::string choices;
  for (const std::string& choice : option.choices) choices += (choices.empty() ? "" : "|") + choice;
  return names + " " + escaped(choices);
}

void write_options(const DescribedCommand& command, std::string& out) {
  for (const DescribedOption& option : command.options) {
    out += ".TP\n" + option_heading(option) + "\n" + escaped(one_line(option.text));
    if (!option.default_value.empty()) out += " (default: " + escaped(option.default_value) + ")";
    out += "\n";
  }
}

// The words after the options in the usage line.
std::string usage_arguments(const DescribedCommand& command) {
  std::string out;
  for (const DescribedOption& option : command.options)
    if (option.positional) {
      const std::string name = "\\fI" + escaped(option.names.front()) + "\\fR" + (option.repeats ? "..." : "");
      out += option.required ? " " + name : " [" + name + "]";
    }
  return out;
}

std::vector<std::string> paragraphs(const std::string& text) {
  std::vector<std::string> found(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      if (!found.back().empty()) found.emplace_back();
    } else {
      found.back() += line + "\n";
    }
  }
  if (found.back().empty()) found.pop_back();
  return found;
}

// A footer consists of paragraphs of the form "Heading: text", or of "Heading:" above lines that are shown verbatim.
void write_footer(const std::string& footer, const char* heading_request, std::string& out) {
  for (const std::string& paragraph : paragraphs(footer)) {
    const std::size_t colon = paragraph.find(':');
    std::string body = colon == std::string::npos ? paragraph : paragraph.substr(colon + 1);
    if (colon != std::string::npos)
      out += fmt::format("{} {}\n", heading_request, escaped(upper(paragraph.substr(0, colon))));
    if (body.starts_with("\n")) {
      out += ".nf\n" + escaped(body.substr(1)) + ".fi\n";
    } else {
      out += escaped(one_line(body.substr(body.find_first_not_of(' ')))) + "\n";
    }
  }
}

}  // namespace

std::string man_page(const CLI::App& app, const std::string& version) {
  const DescribedCommand tool = describe(app);
  std::string out = fmt::format(
      ".\\\" Written from the description that rankstacks \\-\\-help prints. Do not edit.\n.TH {} 1 \"\" \"{} {}\" "
      "\"User Commands\"\n",
      upper(tool.name), tool.name, version);
  std::string purpose = one_line(tool.text.substr(0, tool.text.find(':')));
  if (!purpose.empty()) purpose[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(purpose[0])));
  out += ".SH NAME\n" + escaped(tool.name) + " \\- " + escaped(purpose) + "\n.SH SYNOPSIS\n";
  for (const DescribedCommand& command : tool.commands)
    out += fmt::format("\\fB{} {}\\fR [\\fIOPTIONS\\fR]{}\n.br\n", escaped(tool.name), escaped(command.name),
                       usage_arguments(command));
  out += ".SH DESCRIPTION\n" + escaped(one_line(tool.text)) + "\n.SH OPTIONS\n";
  write_options(tool, out);
  out += ".SH COMMANDS\n";
  for (const DescribedCommand& command : tool.commands) {
    out += fmt::format(".SS {} {}\n{}\n", escaped(tool.name), escaped(command.name), escaped(one_line(command.text)));
    write_options(command, out);
    for (const std::string& paragraph : paragraphs(command.footer)) out += ".PP\n.nf\n" + escaped(paragraph) + ".fi\n";
  }
  write_footer(tool.footer, ".SH", out);
  return out;
}

}  // namespace rankstacks::packaging
