#include "redact/command_secrets.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace rankstacks::redact;

namespace {

std::string words(std::string_view text) { return without_secrets(text, Text::kWords); }

std::string line_of(std::vector<std::string> command) {
  std::string line;
  for (const std::string& word : without_secrets(std::move(command))) line += (line.empty() ? "" : " ") + word;
  return line;
}

using Words = std::vector<std::string>;
struct Shown {
  Words command;
  std::string line;
};

}  // namespace

TEST_CASE("options of programs that have a secret as their value") {
  for (const auto& [command, line] : std::vector<Shown>{
           {{"sshpass", "-phunter2", "ssh", "-p", "22", "h"}, "sshpass -p<token> ssh -p 22 h"},
           {{"sshpass", "-v", "-p", "hunter2", "ssh", "-p", "22", "h"}, "sshpass -v -p <token> ssh -p 22 h"},
           {{"timeout", "5", "sshpass", "-p", "hunter2", "ssh"}, "timeout 5 sshpass -p <token> ssh"},
           {{"sudo", "-E", "curl", "-u", "me:hunter2"}, "sudo -E curl -u <token>"},
           {{"curl", "-ume:hunter2", "h"}, "curl -u<token> h"},
           {{"curl", "-sSume:hunter2", "h"}, "curl -sSu<token> h"},
           {{"curl", "-fsSu", "me:hunter2", "h"}, "curl -fsSu <token> h"},
           {{"curl", "--user=me:hunter2", "h"}, "curl --user=<token> h"},
           {{"/opt/redis/redis-cli", "-a", "hunter2", "-p", "6379"}, "/opt/redis/redis-cli -a <token> -p 6379"},
           {{"zip", "-rP", "hunter2", "x.zip", "x"}, "zip -rP <token> x.zip x"},
           {{"7z", "a", "-phunter2", "x.7z"}, "7z a -p<token> x.7z"},
           {{"keytool", "-storepass", "hunter2", "-alias", "x"}, "keytool -storepass <token> -alias x"},
           {{"openssl", "rsa", "-passin", "pass:hunter2", "-in", "k"}, "openssl rsa -passin <token> -in k"},
           {{"openssl", "rsa", "-passin", "file:/x", "-passout", "env:X"},
            "openssl rsa -passin file:/x -passout env:X"},
           {{"smbclient", "-U", "bob%hunter2", "//h/s"}, "smbclient -U bob%<token> //h/s"},
           {{"smbclient", "-Ubob%hunter2", "//h/s"}, "smbclient -Ubob%<token> //h/s"},
           {{"ldapsearch", "-xw", "hunter2", "-b", "o=x"}, "ldapsearch -xw <token> -b o=x"},
           {{"ipmitool", "-I", "lanplus", "-P", "hunter2"}, "ipmitool -I lanplus -P <token>"},
           {{"mongosh", "-u", "b", "-p", "hunter2"}, "mongosh -u b -p <token>"},
           {{"plink", "-pw", "hunter2", "-P", "22"}, "plink -pw <token> -P 22"},
           {{"lftp", "-u", "me,hunter2", "h"}, "lftp -u me,<token> h"},
           {{"docker", "login", "-u", "u", "-p", "hunter2"}, "docker login -u u -p <token>"},
           {{"docker", "exec", "db", "mysql", "-phunter2"}, "docker exec db mysql -p<token>"},
           {{"aws", "configure", "set", "aws_secret_access_key", "hunter2"},
            "aws configure set aws_secret_access_key <token>"},
           {{"git", "config", "--global", "x.token", "hunter2"}, "git config --global x.token <token>"},
           {{"rclone", "--sftp-pass", "hunter2", "ls"}, "rclone --sftp-pass <token> ls"},
           {{"env", "SSHPASS=hunter2", "sshpass", "-e"}, "env SSHPASS=<token> sshpass -e"},
           {{"ssh", "h", "echo", "hunter2", "|", "sudo", "-S", "ls"}, "ssh h echo <token> | sudo -S ls"},
       }) {
    CAPTURE(line);
    CHECK(line_of(command) == line);
  }
}

TEST_CASE("commands in scripts and messages") {
  for (const auto& [text, shown] : std::vector<std::pair<std::string, std::string>>{
           {"curl -u me:hunter2 http://x | sh", "curl -u <token> http://x | sh"},
           {"cd /x && mysql -uroot -phunter2 db; ls", "cd /x && mysql -uroot -p<token> db; ls"},
           {"mysql -p'hunter 2' db", "mysql -p'<token>' db"},
           {"curl -u \"me:hunter 2\" h", "curl -u \"<token>\" h"},
           {"Command '['mysql', '-uroot', '-phunter2']' returned non-zero exit status 1.",
            "Command '['mysql', '-uroot', '-p<token>']' returned non-zero exit status 1."},
           {"Command 'sshpass -p hunter2 ssh h' returned", "Command 'sshpass -p <token> ssh h' returned"},
           {"[\"curl\",\"-u\",\"me:hunter2\",\"h\"]", "[\"curl\",\"-u\",\"<token>\",\"h\"]"},
           {"[curl, -u, me:hunter2]", "[curl, -u, <token>]"},
           {"['t.py', '--password', 'hunter2', '--lr', '1']", "['t.py', '--password', '<token>', '--lr', '1']"},
           {"redis-cli \\\n  -a hunter2 ping", "redis-cli \\\n  -a <token> ping"},
           {"echo hunter2 | sudo -S ls", "echo <token> | sudo -S ls"},
           {"echo 'hunter 2' | sudo -kS ls", "echo '<token>' | sudo -kS ls"},
           {"printf hunter2 | docker login -u u --password-stdin",
            "printf <token> | docker login -u u --password-stdin"},
           {"sudo -S ls <<< hunter2", "sudo -S ls <<< <token>"},
           {"sudo -S ls <<<\"hunter 2\"", "sudo -S ls <<<\"<token>\""},
           {"--auth-token hunter2", "--auth-token <token>"},
           {"keytool -list -storepass hunter2", "keytool -list -storepass <token>"},
       }) {
    CAPTURE(text);
    CHECK(words(text) == shown);
    CHECK(words(shown) == shown);
  }
  CHECK(without_secrets("f_sshpass -phunter2", Text::kName) == "f_sshpass -p<token>");
  CHECK(without_secrets("/srv/sshpass -phunter2/x.py", Text::kPath) == "/srv/sshpass -p<token>/x.py");
}

TEST_CASE("ordinary options stay") {
  for (const Words& command : std::vector<Words>{
           {"ssh", "-p", "2222", "-i", "key", "h"},
           {"torchrun", "-p", "29500", "train.py"},
           {"python3", "-u", "train.py", "-p", "29500", "-P", "4", "-w", "8", "-a", "b:c"},
           {"python3", "train.py", "--format", "zip", "-P", "4"},
           {"python3", "-m", "mysql_train", "-pfast"},
           {"mysql", "-h", "h", "-P", "3306", "-p", "db"},
           {"curl", "-u", "me", "-o", "x:y"},
           {"docker", "run", "-p", "8080", "img"},
           {"git", "config", "credential.helper", "store"},
           {"sudo", "-u", "alice", "ls"},
           {"openssl", "req", "-key", "k", "-keyout", "o", "-check", "x"},
           {"tar", "-cf", "x.tar", "zip", "-C", "x"},
           {"redis-server", "-a", "x"},
           {"echo", "hello", "|", "sudo", "ls"},
           {"train", "--n-pass", "fast", "--custom-post-pass", "fuse", "--forward_pass=slow", "--bypass", "x"},
       }) {
    std::string line;
    for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
    CAPTURE(line);
    CHECK(line_of(command) == line);
    CHECK(words(line.find("zip -") == std::string::npos ? line : "") ==
          (line.find("zip -") == std::string::npos ? line : ""));
  }
  for (const std::string text :
       {"a | b -p c", "x - y, the net - is down", "echo done | tee -a log", "set -e; config x", "/usr/bin/zip",
        "SSH_ASKPASS=/usr/bin/x", "post_grad_custom_pre_pass=fuse", "compass=x"})
    CHECK(words(text) == text);
}

TEST_CASE("headers") {
  CHECK(words("Authorization: token 9f8e7d6c5b") == "Authorization: token <token>");
  CHECK(words("Authorization: ApiKey hunter") == "Authorization: ApiKey <token>");
  CHECK(words("Proxy-Authorization: Negotiate YII=") == "Proxy-Authorization: Negotiate <token>");
  CHECK(words("Authorization: Acme 9f8e7d6c5b x") == "Authorization: <token> x");
  CHECK(words("Authorization: 9f8e7d6c5b failed") == "Authorization: <token> failed");
  CHECK(words("{'Authorization': 'token 9f8e7d6c5b'}") == "{'Authorization': '<token>'}");
  CHECK(words("curl -H 'Authorization: Digest username=\"u\", response=\"r\"' h") ==
        "curl -H 'Authorization: Digest username=\"<token>\", response=\"<token>\"' h");
  CHECK(words("Authorization: AWS4-HMAC-SHA256 Credential=AKX/1/s3, SignedHeaders=host, Signature=fe5f") ==
        "Authorization: AWS4-HMAC-SHA256 Credential=<token>, SignedHeaders=<token>, Signature=<token>");
  CHECK(words("Authorization: Acme a=\"b\"") == "Authorization: <token> a=\"<token>\"");
  CHECK(words("Authorization: Basic dXNlcjpodW50ZXIy== x") == "Authorization: Basic <token> x");
  CHECK(words("authorization: was denied") == "authorization: was denied");
  CHECK(words("Authorization: Bearer <token>") == "Authorization: Bearer <token>");
}

TEST_CASE("addresses of webhooks, and secrets of AWS") {
  CHECK(words("https://a.webhook.office.com/webhookb2/1-2@3/IncomingWebhook/0123456789abcdef0123456789abcdef/77 x") ==
        "https://a.webhook.office.com/webhookb2/<token>/IncomingWebhook/<token>/<token> x");
  CHECK(words("to /IncomingWebhook/0123456789abcdef0123456789abcdef/77") == "to /IncomingWebhook/<token>/<token>");
  CHECK(words("https://discord.com/api/webhooks/1/abc-def?wait=1") ==
        "https://discord.com/api/webhooks/<token>/<token>?wait=1");
  CHECK(words("https://hooks.slack.com/services/T0/B0/XXXXXXXXXXXXXXXXXXXXXXXX.") ==
        "https://hooks.slack.com/services/<token>/<token>/<token>");
  CHECK(without_secrets("/srv/discord.com/api/webhooks/1/abc-def/x.py", Text::kPath) ==
        "/srv/discord.com/api/webhooks/<token>/<token>/x.py");
  CHECK(words("https://hooks.slack.com/services/") == "https://hooks.slack.com/services/");
  const std::string key = std::string("wJalrXUtnFEMI/K7MDENG") + "/bPxRfiCYEXAMPLEKEY";
  CHECK(words(key) == "<token>");
  CHECK(line_of({"t.py", key}) == "t.py <token>");
  for (const std::string path :
       {"src/Models/Resnet50/TrainLoopV2/Step/abcd", "/opt/Models/Resnet50/TrainLoop/Stepabcde",
        "models/transformer/layers/attention/h100"}) {
    CAPTURE(path.size());
    CHECK(words(path) == path);
  }
}

TEST_CASE("hostile commands take time in proportion to their length") {
  for (const std::string& part :
       {std::string("mysql -p"), std::string("mysql -px "), std::string("sshpass -p '"),
        std::string("echo a | sudo -S "), std::string("echo "), std::string("| "), std::string("<<< "),
        std::string("-u \""), std::string("curl -u a:b "), std::string("git set "), std::string("token x "),
        std::string("Authorization: "), std::string("docker login -p"), std::string("Authorization: Digest a=\"b"),
        std::string("IncomingWebhook/"), std::string("IncomingWebhook/a "), std::string("'\\"), std::string("-")}) {
    std::string text;
    while (text.size() < 200'000) text += part;
    for (const Text kind : {Text::kWords, Text::kName, Text::kPath})
      CHECK(without_secrets(text, kind).size() <= 4 * text.size());
    CHECK(without_secrets(Words(20'000, part)).size() == 20'000);
  }
}
