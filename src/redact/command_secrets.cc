#include "redact/command_secrets.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "redact/secret_shapes.h"

namespace rankstacks::redact {
namespace {

enum class Value {
  kWhole,          // "-p X", "-pX", "-vp X", "--pin=X"
  kNext,           // "-pw X": of programs whose long options have one '-', so that "-pwX" may be another option
  kAttached,       // "-pX"; behind "-p" alone stands something else
  kUserColon,      // "-u user:X"; without a colon it is a user
  kBehindPercent,  // "-U user%X"
  kBehindComma,    // "-u user,X"
};

struct SecretOption {
  std::string_view programs;
  std::string_view options;
  Value value;
  std::string_view with;  // a word that comes before; "": none must
  std::string_view source;
};

// clang-format off
constexpr SecretOption kOptions[] = {
    {"sshpass", "-p", Value::kWhole, "", "sshpass(1)"},
    {"mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlslap mysqlcheck mysqlpump mysqlsh mysqlbinlog mysql_upgrade mariadb "
     "mariadb-dump mariadb-admin mariadb-import mariadb-show mariadb-slap mariadb-check mariadb-binlog mariadb-upgrade", "-p", Value::kAttached, "", "MySQL manual, 6.2.2: no blank before the password"},
    {"curl", "-u --user -U --proxy-user", Value::kUserColon, "", "curl(1)"},
    {"http https xh", "-a --auth", Value::kWhole, "", "HTTPie: --auth"},
    {"docker podman nerdctl buildah helm skopeo oras crane", "-p", Value::kWhole, "login", "docker login --help"},
    {"az oc cf ibmcloud", "-p", Value::kWhole, "login", "az login --help"},
    {"skopeo podman buildah", "--creds --src-creds --dest-creds", Value::kUserColon, "", "skopeo-copy(1)"},
    {"redis-cli redis-benchmark valkey-cli valkey-benchmark keydb-cli", "-a", Value::kWhole, "", "redis-cli --help"},
    {"mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop mongofiles", "-p", Value::kWhole, "", "mongosh --help"},
    {"cqlsh beeline rabbitmqadmin", "-p", Value::kWhole, "", "cqlsh --help, beeline --help"},
    {"nodetool plink pscp psftp pageant putty", "-pw", Value::kNext, "", "PuTTY manual, 3.8.3.8"},
    {"sqlcmd bcp isql tsql fisql", "-P", Value::kWhole, "", "sqlcmd -?"},
    {"zip unzip zipcloak funzip", "-P", Value::kWhole, "", "zip(1)"},
    {"7z 7za 7zr 7zz rar unrar", "-p -hp", Value::kAttached, "", "7-Zip, switch -p"},
    {"keytool jarsigner apksigner", "-storepass -keypass -srcstorepass -deststorepass -srckeypass -destkeypass -new", Value::kNext, "", "keytool(1)"},
    {"openssl", "-pass -passin -passout -password -k -K", Value::kNext, "", "openssl-enc(1), openssl-passphrase-options(1)"},
    {"smbclient smbget smbcacls rpcclient net winexe wmic", "-U --user", Value::kBehindPercent, "", "smbclient(1)"},
    {"lftp", "-u", Value::kBehindComma, "", "lftp(1)"},
    {"ldapsearch ldapmodify ldapadd ldapdelete ldapcompare ldapmodrdn ldapwhoami ldapexop ldappasswd", "-w", Value::kWhole, "", "ldapsearch(1)"},
    {"ldappasswd", "-s -a", Value::kWhole, "", "ldappasswd(1)"},
    {"ipmitool", "-P -k -y", Value::kWhole, "", "ipmitool(1)"},
    {"ipmi-sensors ipmipower ipmi-chassis ipmiconsole bmc-info", "-p", Value::kWhole, "", "freeipmi(7)"},
    {"snmpget snmpgetnext snmpbulkget snmpwalk snmpbulkwalk snmpset snmptrap", "-A -X -c", Value::kWhole, "", "snmpcmd(1)"},
    {"mosquitto_pub mosquitto_sub mosquitto_rr", "-P --pw", Value::kWhole, "", "mosquitto_pub(1)"},
    {"useradd usermod", "-p", Value::kWhole, "", "useradd(8)"},
    {"rdesktop", "-p", Value::kNext, "", "rdesktop(1)"},
    {"xfreerdp wlfreerdp xfreerdp3", "/p:", Value::kAttached, "", "xfreerdp(1)"},
};

// Whose command begins behind their own options: what comes then has options of its own ("sshpass -p X ssh -p 22").
constexpr std::string_view kRunsAnother[] = {"sshpass"};

// Programs that are given the name of a setting and its value as two words, behind one of these words.
struct Setter {
  std::string_view programs, behind;
};
constexpr Setter kSetters[] = {
    {"aws git npm yarn pnpm pip pip3 poetry conda gcloud dvc pulumi gh redis-cli valkey-cli", "set config modify SET CONFIG"},
    {"setenv setx", ""},
};

// Who reads a secret from standard input, if a word begins so ("": always).
struct Reader {
  std::string_view program, word;
};
constexpr Reader kReaders[] = {
    {"sudo", "-S"}, {"sudo", "--stdin"}, {"passwd", "--stdin"}, {"chpasswd", ""}, {"su", ""}, {"kinit", ""}, {"cryptsetup", ""},
    {"gpg", "--passphrase-fd"}, {"gpg2", "--passphrase-fd"}, {"gh", "--with-token"}, {"vncpasswd", "-f"}, {"smbpasswd", "-s"},
};

// Programs whose command is that of another one.
constexpr std::string_view kWrappers[] = {
    "sudo", "doas", "env", "timeout", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "exec", "command", "xargs",
    "srun", "mpirun", "mpiexec", "prun", "ssh", "chroot", "unshare", "nsenter", "runuser", "su", "flock", "strace",
    "ltrace", "taskset", "numactl", "docker", "podman", "nerdctl", "kubectl", "singularity", "apptainer", "enroot",
    "watch", "systemd-run", "bwrap", "tini", "dumb-init", "sshpass", "find", "parallel",
};
// clang-format on

struct Token {
  std::size_t begin = 0;
  std::string_view text;
  std::string_view whole;  // behind a quotation mark: all up to the next one
  bool ends_command = false;
  bool touches_next = false;  // only a quotation mark is between
};

bool is_quote(char c) { return c == '\'' || c == '"' || c == '`'; }

bool is_listed(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    if (one == word) return true;
  }
  return false;
}

bool is_known_program(std::string_view name) {
  const auto is_of = [&](const auto& row) { return is_listed(row.programs, name); };
  return std::any_of(std::begin(kOptions), std::end(kOptions), is_of) ||
         std::any_of(std::begin(kSetters), std::end(kSetters), is_of);
}

// The words of a text, as a shell or the printed list of a command has them. Quotation marks divide them: what stands
// behind one may be a whole command or one word of it.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  std::size_t at = 0;
  const auto add = [&](std::size_t begin, std::size_t end, bool ends_command) {
    const bool quoted = begin > 0 && is_quote(text[begin - 1]) && !ends_command;
    std::string_view word = text.substr(begin, end - begin);
    if (!quoted && !ends_command) {  // [mysql, -pX]
      while (!word.empty() && contains("[({$,", word.front())) word.remove_prefix(1), ++begin;
      while (!word.empty() && contains(",])}", word.back())) word.remove_suffix(1);
    }
    if (word.ends_with('\\')) word.remove_suffix(1);  // before a quotation mark, or at the end of a line
    const bool is_between = std::all_of(word.begin(), word.end(), [](char c) { return contains("[](){},:", c); });
    if (is_between) return;
    Token token{begin, word, word, ends_command, false};
    if (quoted)
      if (const std::size_t close = text.find(text[begin - 1], end); close != std::string_view::npos)
        token.whole = text.substr(begin, close - begin - (text[close - 1] == '\\'));
    if (!tokens.empty() && quoted) {
      Token& before = tokens.back();
      before.touches_next = before.begin + before.text.size() + 1 == begin;
    }
    tokens.push_back(token);
  };
  while (at < text.size()) {
    const char c = text[at];
    const bool line_ends = c == '\n' && (at == 0 || text[at - 1] != '\\');
    if (line_ends || c == ';' || c == '|' ||
        (c == '&' && (text.substr(at, 2) == "&&" || (at > 0 && is_blank(text[at - 1]))))) {
      add(at, at + 1, true);
      at += text.substr(at, 2) == "&&" ? 2 : 1;
      continue;
    }
    if (is_blank(c) || is_quote(c)) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && !is_blank(text[end]) && !is_quote(text[end]) && text[end] != ';' && text[end] != '|' &&
           text.substr(end, 2) != "&&")
      ++end;
    add(at, end, false);
    at = std::max(end, at + 1);
  }
  return tokens;
}

class CommandScan {
 public:
  // `in_text`: a program may stand anywhere, also behind other characters (a function's name that is a sentence).
  CommandScan(std::vector<Token> tokens, Text kind, bool in_text)
      : tokens_(std::move(tokens)), kind_(kind), in_text_(in_text) {}

  std::vector<Span> run() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.ends_command) {
        end_command(i, i + 1 < tokens_.size() && token.text == "|" && !tokens_[i + 1].ends_command);
        continue;
      }
      if (token.begin < hidden_up_to_) continue;
      if (const std::string_view program = program_at(i); !program.empty()) {
        program_ = program, program_at_ = i;
        continue;
      }
      if (by_option(i) || by_name(i) || by_setting(i)) continue;
      const bool is_option = token.text.starts_with('-');
      if (!is_option && is_one_of(program_, kRunsAnother)) program_ = {};
    }
    end_command(tokens_.size(), false);
    return in_order();
  }

 private:
  // What echo is given is hidden when the command behind is known; words of a quotation are in it.
  std::vector<Span> in_order() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::vector<Span> apart;
    for (const Span& span : spans_) {
      if (apart.empty() || span.begin >= apart.back().end) apart.push_back(span);
      else apart.back().end = std::max(apart.back().end, span.end);
    }
    return apart;
  }

  static std::string_view base_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

  // The program that a word names, if it is one of the tables.
  std::string_view program_at(std::size_t i) const {
    const std::string_view base = base_of(tokens_[i].text);
    if (!in_text_) {
      const std::size_t first = command_begin_;
      const bool may_be = i == first || is_one_of(base_of(tokens_[first].text), kWrappers) ||
                          !tokens_[i - 1].text.starts_with('-') || tokens_[i - 1].text == "--";
      return may_be && is_known_program(base) ? base : std::string_view();
    }
    if (is_known_program(base)) return base;
    const std::string_view end = base.substr(base.rfind('_') + 1);
    return end.size() < base.size() && is_known_program(end) ? end : std::string_view();
  }

  bool is_program(std::string_view word, std::string_view program) const {
    const std::string_view base = base_of(word);
    if (base == program) return true;
    return in_text_ && base.ends_with(program) && base[base.size() - program.size() - 1] == '_';
  }

  // Whether a word stands between the program and this one.
  bool is_behind(std::string_view list, std::size_t i) const {
    for (std::size_t at = program_at_ + 1; at < i && at < program_at_ + kLookedBack; ++at)
      if (is_listed(list, tokens_[at].text)) return true;
    return false;
  }

  // The word behind, if it can be the value of an option.
  const Token* next(std::size_t i) const {
    if (i + 1 >= tokens_.size() || tokens_[i + 1].ends_command) return nullptr;
    const Token& value = tokens_[i + 1];
    const bool is_option = value.text.size() > 2 && value.text.starts_with("--");
    return is_option || value.whole == kSecret ? nullptr : &value;
  }

  // The value that is a part of the option's own word: where it begins there; nullopt: there is none.
  static std::optional<std::size_t> attached(std::string_view word, std::string_view option, Value shape) {
    if (word.size() <= option.size() || shape == Value::kNext) return std::nullopt;
    const bool is_long = option.starts_with("--");
    if (word.starts_with(option)) {
      if (is_long) return word[option.size()] == '=' ? std::optional(option.size() + 1) : std::nullopt;
      return option.size();
    }
    // "-sSume:X"
    const std::size_t letter = option.size() == 2 ? word.find(option[1], 2) : std::string_view::npos;
    const bool grouped = shape == Value::kUserColon && letter != std::string_view::npos && letter < kLongestGroup &&
                         is_group(word.substr(0, letter + 1)) && letter + 1 < word.size();
    return grouped ? std::optional(letter + 1) : std::nullopt;
  }

  // "-rP": options of one letter, the last of which may have a value.
  static bool is_group(std::string_view word) {
    return word.size() > 2 && word.size() <= kLongestGroup && word[0] == '-' &&
           std::all_of(word.begin() + 1, word.end(), [](char c) { return is_lower(c) || is_upper(c); });
  }

  bool by_option(std::size_t i) {
    const std::string_view word = tokens_[i].text;
    if (program_.empty() || (word[0] != '-' && word[0] != '/')) return false;
    for (const SecretOption& row : kOptions) {
      if (!is_listed(row.programs, program_) || (!row.with.empty() && !is_behind(row.with, i))) continue;
      for (std::string_view rest = row.options; !rest.empty();) {
        const std::string_view option = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(rest.size(), option.size() + 1));
        if (const auto from = attached(word, option, row.value))
          if (hide(tokens_[i], *from, tokens_[i].whole, row.value)) return true;
        const bool separate = word == option || (row.value != Value::kNext && option.size() == 2 && is_group(word) &&
                                                 word.back() == option[1]);
        const Token* value = next(i);
        if (!separate || value == nullptr) continue;
        if (row.value == Value::kAttached && !tokens_[i].touches_next) continue;  // -p'X'
        const bool looks_like_option = value->text.size() == 2 && value->text[0] == '-';
        if (!looks_like_option && hide(*value, 0, value->whole, row.value)) return true;
      }
    }
    return false;
  }

  // --password X, -storepass X
  bool by_name(std::size_t i) {
    const std::string_view word = tokens_[i].text;
    constexpr std::size_t kShortest = 4, kLongest = 100;
    const bool is_long = word.starts_with("--") || (word.starts_with('-') && word.size() >= kShortest);
    const Token* value = is_long && word.size() <= kLongest ? next(i) : nullptr;
    const auto of_name = [](char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; };
    if (value == nullptr || !std::all_of(word.begin(), word.end(), of_name)) return false;
    if (!word.starts_with("--") && value->text.starts_with('-')) return false;
    if (is_one_of(value->text, {"Bearer", "bearer", "Basic", "basic"})) return false;  // what follows is the secret
    return names_a_secret(word, value->whole) && hide(*value, 0, value->whole, Value::kWhole);
  }

  // aws configure set aws_secret_access_key X
  bool by_setting(std::size_t i) {
    if (program_.empty() || tokens_[i].text.starts_with('-')) return false;
    const Token* value = next(i);
    if (value == nullptr || value->text.starts_with('-') || contains(tokens_[i].text, '=')) return false;
    if (tokens_[i].text.ends_with(".helper")) return false;  // of git: who keeps the credentials
    for (const Setter& setter : kSetters)
      if (is_listed(setter.programs, program_) && (setter.behind.empty() || is_behind(setter.behind, i)) &&
          names_a_secret(tokens_[i].text, value->whole))
        return hide(*value, 0, value->whole, Value::kWhole);
    return false;
  }

  bool reads_a_secret(std::size_t begin, std::size_t end) const {
    std::string_view program;
    for (std::size_t i = begin; i < end; ++i) {
      const std::string_view word = tokens_[i].text;
      for (const Reader& reader : kReaders) {
        if (is_program(word, reader.program)) {
          program = reader.program;
          if (reader.word.empty()) return true;
        }
        if (program != reader.program || reader.word.empty()) continue;
        const bool in_group = reader.word.size() == 2 && is_group(word) && contains(word, reader.word[1]);
        if (word.starts_with(reader.word) || in_group) return true;
      }
      // docker login --password-stdin, openconnect --passwd-on-stdin
      if (word.starts_with("--") && contains(word, "passw") && contains(word, "stdin")) return true;
    }
    return false;
  }

  // echo X | sudo -S, sudo -S <<< X: a command ends before the token `end`.
  void end_command(std::size_t end, bool pipes) {
    const std::size_t begin = command_begin_;
    const bool has_here_string = std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                                             tokens_.begin() + static_cast<std::ptrdiff_t>(end),
                                             [](const Token& token) { return token.text.starts_with("<<<"); });
    if ((echoed_ < begin || has_here_string) && reads_a_secret(begin, end)) {
      for (std::size_t i = echoed_; i + 1 < begin; ++i)
        if (!tokens_[i].text.starts_with('-')) hide(tokens_[i], 0, tokens_[i].whole, Value::kWhole);
      for (std::size_t i = begin; i < end; ++i) {
        if (!tokens_[i].text.starts_with("<<<")) continue;
        if (tokens_[i].text.size() > 3) hide(tokens_[i], 3, tokens_[i].text, Value::kWhole);
        else if (i + 1 < end) hide(tokens_[i + 1], 0, tokens_[i + 1].whole, Value::kWhole);
      }
    }
    echoed_ = tokens_.size();
    if (pipes)
      for (std::size_t i = begin; i < end; ++i)
        if (is_program(tokens_[i].text, "echo") || is_program(tokens_[i].text, "printf")) echoed_ = i + 1;
    command_begin_ = end + 1;
    program_ = {};
  }

  // The secret in a value, which begins in the token's `text` at `from`.
  bool hide(const Token& token, std::size_t from, std::string_view text, Value shape) {
    std::string_view value = text.substr(from);
    std::size_t begin = token.begin + from;
    const auto behind = [&](char c) {
      const std::size_t sign = value.find(c);
      if (sign == std::string_view::npos) return false;
      value.remove_prefix(sign + 1), begin += sign + 1;
      return true;
    };
    if (shape == Value::kUserColon && !contains(value, ':')) return false;
    if (shape == Value::kBehindPercent && !behind('%')) return false;
    if (shape == Value::kBehindComma && !behind(',')) return false;
    for (const std::string_view elsewhere : {"env:", "file:", "fd:"})  // of openssl
      if (value.starts_with(elsewhere)) return false;
    // In a path a value ends with its directory, unless it goes on as base64 does, which has slashes.
    if (kind_ == Text::kPath) {
      const std::size_t slash = std::min(value.find('/'), value.size());
      if (looks_like_aws_secret_key(value.substr(0, kAwsSecretKey))) value = value.substr(0, kAwsSecretKey);
      else if (value.find_first_of("+=", slash) == std::string_view::npos) value = value.substr(0, slash);
    }
    if (value.empty() || value == kSecret) return false;
    spans_.push_back({begin, begin + value.size()});
    hidden_up_to_ = std::max(hidden_up_to_, begin + value.size());
    return true;
  }

  static constexpr std::size_t kLookedBack = 16, kLongestGroup = 8;
  std::vector<Token> tokens_;
  Text kind_;
  bool in_text_;
  std::string_view program_;  // of the command at hand; empty: none of the tables
  std::size_t program_at_ = 0, command_begin_ = 0;
  std::size_t echoed_ = static_cast<std::size_t>(-1);  // where the words begin that are written into the pipe
  std::size_t hidden_up_to_ = 0;
  std::vector<Span> spans_;
};

// Without any of these, there is nothing to find.
bool may_have_command(std::string_view text) {
  if (text.starts_with('-')) return true;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (!is_blank(text[i]) && !is_quote(text[i]) && text[i] != ',' && text[i] != '|') continue;
    if (text[i + 1] == '-' || text[i + 1] == '|' || text[i + 1] == '/' || text[i] == '|') return true;
    const std::string_view rest = text.substr(i + 1);
    for (const std::string_view word : {"set", "SET", "config", "CONFIG", "<<<"})
      if (rest.starts_with(word)) return true;
  }
  return false;
}

}  // namespace

std::vector<Span> secrets_of_commands(std::string_view text, Text kind) {
  if (!may_have_command(text)) return {};
  return CommandScan(tokens_of(text), kind, true).run();
}

std::vector<Span> secrets_of_words(const std::vector<std::string>& words) {
  std::vector<Token> tokens;
  std::size_t begin = 0;
  for (const std::string& word : words) {
    const bool ends_command = is_one_of(word, {"|", ";", "&&", "||", "&"});
    if (!word.empty()) tokens.push_back({begin, word, word, ends_command, false});
    begin += word.size() + 1;
  }
  return CommandScan(std::move(tokens), Text::kWords, false).run();
}

}  // namespace rankstacks::redact
