#include "redact/secrets.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "redact/secret_shapes.h"

using namespace rankstacks::redact;

namespace {

std::string words(std::string_view text) { return without_secrets(text, Text::kWords); }
std::string name(std::string_view text) { return without_secrets(text, Text::kName); }
std::string path(std::string_view text) { return without_secrets(text, Text::kPath); }

std::string line_of(std::vector<std::string> command) {
  std::string line;
  for (const std::string& word : without_secrets(std::move(command))) line += (line.empty() ? "" : " ") + word;
  return line;
}

// Put together here, so that no scanner of repositories takes the test for a leak.
std::string joined(std::string_view a, std::string_view b) { return std::string(a) + std::string(b); }
const std::string k36 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
const std::string kHex32 = "0123456789abcdef0123456789abcdef";

}  // namespace

TEST_CASE("keys of services, by their prefixes") {
  for (const std::string& key : {joined("AKIA", "IOSFODNN7EXAMPLE"),
                                 joined("ASIA", "IOSFODNN7EXAMPLE"),
                                 joined("ghp_", k36),
                                 joined("gho_", k36),
                                 joined("ghs_", k36),
                                 joined("github_pat_", "11ABCDEFG0" + k36),
                                 joined("glpat-", "x9Yz_8Wv7Ut6Sr5Qp4On"),
                                 joined("hf_", "AbCdEfGhIjKlMnOpQrStUvWxYz012345"),
                                 joined("sk-", "proj-" + k36),
                                 joined("sk-ant-", "api03-" + k36),
                                 joined("xoxb-", "123456789012-abcdefGHIJKL"),
                                 joined("AIza", "SyA1234567890abcdefghijklmnopqrstuv"),
                                 joined("ya29.", k36),
                                 joined("npm_", k36),
                                 joined("pypi-", "AgEIcHlwaS5vcmcC" + k36),
                                 joined("SG.", k36 + "." + k36),
                                 joined("dapi", kHex32),
                                 joined("hvs.", k36),
                                 joined("nvapi-", k36),
                                 joined("sk_live_", k36),
                                 joined("dckr_pat_", k36),
                                 joined("tskey-", "auth-k123456CNTRL-" + k36),
                                 joined("gsk_", k36),
                                 joined("glpat-", "OOILpIMhtCgYAkivXsMC"),
                                 joined("SK", kHex32),
                                 joined("glsa_", k36 + "_0123abcd"),
                                 joined("lsv2_pt_", kHex32 + "_0123456789"),
                                 joined("a1B8Q~", k36),
                                 joined("123456789:AA", "H" + k36.substr(0, 32)),
                                 joined("AGE-SECRET-KEY-", "1QQPQZQJQ8Q9Q0QWERTYUIOPASDFGHJKLZXCVBNM")}) {
    CAPTURE(key);
    for (const auto& of : {words, name, path}) {
      CHECK(of(key) == "<token>");
      CHECK(of("/x/" + key + "/y") == "/x/<token>/y");
    }
    CHECK(words("see '" + key + "', it fails") == "see '<token>', it fails");
    CHECK(name("f<" + key + ">::run(int)") == "f<<token>>::run(int)");
  }
}

TEST_CASE("JSON web tokens and private keys") {
  const std::string jwt =
      joined("eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U");
  CHECK(words("got " + jwt + " back") == "got <token> back");
  CHECK(words("Authorization: Bearer " + jwt) == "Authorization: Bearer <token>");
  const std::string begin = joined("-----BEGIN RSA PRIV", "ATE KEY-----"),
                    end = joined("-----END RSA PRIV", "ATE KEY-----");
  CHECK(words("k=" + begin + "\nMIIE\nxyz\n" + end + " rest") == "k=<token> rest");
  CHECK(words(begin + " cut of") == "<token>");
  CHECK(words("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----").starts_with("-----BEGIN CERT"));
}

TEST_CASE("URLs and connection strings") {
  CHECK(words("postgres://bob:hunter2@db.example.com:5432/x") == "postgres://<token>@db.example.com:5432/x");
  CHECK(words("pulled https://x-access-token:abc@github.com/a/b.git") == "pulled https://<token>@github.com/a/b.git");
  CHECK(words("redis://:p%40ss@cache:6379/0") == "redis://<token>@cache:6379/0");
  CHECK(words("mongodb+srv://u:p@c.net/?w=1") == "mongodb+srv://<token>@c.net/?w=1");
  CHECK(words("Server=db;Uid=sa;Password=hunter2;Port=1") == "Server=db;Uid=sa;Password=<token>;Port=1");
  CHECK(words("AccountName=a;AccountKey=Zm9v/YmFy+ZA==;X=1") == "AccountName=a;AccountKey=<token>;X=1");
  CHECK(words("https://h/x?sv=1&sig=aBcD%2B1&se=2") == "https://h/x?sv=1&sig=<token>&se=2");
  CHECK(words("git clone ssh://git@github.com/a/b") == "git clone ssh://git@github.com/a/b");
  CHECK(words("https://pytorch.org/docs/stable/x.html") == "https://pytorch.org/docs/stable/x.html");
}

TEST_CASE("by the name of the variable or option") {
  CHECK(words("API_KEY=hunter2") == "API_KEY=<token>");
  CHECK(words("WANDB_API_KEY: hunter2") == "WANDB_API_KEY: <token>");
  CHECK(words("{\"password\": \"hunter2\", \"user\": \"x\"}") == "{\"password\": \"<token>\", \"user\": \"x\"}");
  CHECK(words("{'client_secret': 'hunter2'}") == "{'client_secret': '<token>'}");
  CHECK(words("PGPASSWORD=hunter2 psql") == "PGPASSWORD=<token> psql");
  CHECK(words("run --password hunter2 --lr 1") == "run --password <token> --lr 1");
  CHECK(words("token=hunter2") == "token=<token>");
  CHECK(words("dbPassword=hunter2") == "dbPassword=<token>");
  CHECK(words("DB_PASS=hunter2") == "DB_PASS=<token>");
  CHECK(words("HF_TOKEN=hunter2") == "HF_TOKEN=<token>");
  CHECK(words("Authorization: Basic dXNlcjpodW50ZXIy") == "Authorization: Basic <token>");
  CHECK(words("session_cookie=abc.def") == "session_cookie=<token>");
  CHECK(words(joined("AKIA", "IOSFODNN7EXAMPLE-token=hunter2")) == "<token>-token=<token>");
}

TEST_CASE("commands, whose options and values are words of their own") {
  CHECK(line_of({"t", "--password", "hunter2", "-x"}) == "t --password <token> -x");
  CHECK(line_of({"t", "--hf-token", "abc", "--lr", "0.1"}) == "t --hf-token <token> --lr 0.1");
  CHECK(line_of({"t", "--api-key=abc"}) == "t --api-key=<token>");
  CHECK(line_of({"env", "SECRET_KEY=x y", "t"}) == "env SECRET_KEY=<token> y t");
  CHECK(line_of({"/usr/bin/mysql", "-phunter2", "-u", "x"}) == "/usr/bin/mysql -p<token> -u x");
  CHECK(line_of({"sshpass", "-p", "hunter2", "ssh", "h"}) == "sshpass -p <token> ssh h");
  CHECK(line_of({"curl", "-u", "bob:hunter2", "http://x"}) == "curl -u <token> http://x");
  CHECK(line_of({"curl", "-H", "Authorization: Bearer abcdefgh123", "http://x"}) ==
        "curl -H Authorization: Bearer <token> http://x");
  CHECK(line_of({"t", "--password", "--next"}) == "t --password --next");
  CHECK(line_of({}) == "");
}

TEST_CASE("paths and names whose parts are words of a message") {
  CHECK(path("/x/API_KEY=hunter2/y.py") == "/x/API_KEY=<token>/y.py");
  CHECK(path("/x/AccountKey=Zm9v/YmFy+ZA==;X=1/y") == "/x/AccountKey=<token>;X=1/y");
  CHECK(path("/x/Cookie: sid=hunter2hunter/y") == "/x/Cookie: <token>/y");
  CHECK(words("secret whsec_" + k36 + "/" + k36) == "secret <token>");  // base64, with slashes
  CHECK(path("/x/using " + kHex32 + "/y") == "/x/using <token>/y");
  CHECK(path("/srv/wJalrX/UtnFEMI3K7MDENG/bPx7RfiCYzR9kLmQ2/y") == "/srv/<token>/y");
  CHECK(name("f_wJalrX/UtnFEMI3K7MDENG+bPx7RfiCYzR9kLmQ2") == "f_<token>");
  CHECK(name("f_{\"key\":\"" + kHex32 + "\"}") == "f_{\"key\":\"<token>\"}");
  CHECK(name("X-Api-Key: hunter2") == "X-Api-Key: <token>");
  CHECK(words("machine h login u password hunter2") == "machine h login u password <token>");
  CHECK(words("password authentication failed") == "password authentication failed");
  CHECK(words("key=layer3.weight") == "key=layer3.weight");
  CHECK(line_of({joined("-----BEGIN PGP PRIV", "ATE KEY BLOCK-----\nlQOY\n"), "x"}) == "<token> x");
}

TEST_CASE("names of threads, of which the kernel keeps 15 bytes") {
  for (const std::string& cut :
       {joined("ghp", "_9aZ8bY7cX6d"), joined("sk", "-proj-arwDQO7"), joined("dckr", "_pat_lyistt"),
        joined("eyJ", "hbGciOiJIUzI"), joined("AKIA", "IOSFODNN7EX"), joined("a1B8", "Q~jYa009liq"),
        joined("12345678", ":AAMvvq"), std::string("LGlGJjjdrkt3wE2")}) {
    CAPTURE(cut);
    REQUIRE(cut.size() == 15);
    CHECK(without_cut_secrets(cut) == "<token>");
  }
  CHECK(without_cut_secrets("redis://u:hunte") == "redis://<token>");
  CHECK(without_cut_secrets("x=" + joined("hf", "_AK1qGkd0HUW").substr(0, 13)) == "x=<token>");
  for (const std::string name :
       {"pt_autograd_0", "pt_nccl_watchdg", "sk-learn-worker", "hf_transformers", "NCCL Progress 1", "key-value-store",
        "TCPStoreServer1", "http://h:29500/", "MyCoolABThread1", "cuda00001400006", "ray::IDLE", "gloo-worker-000"})
    CHECK(without_cut_secrets(name) == name);
}

TEST_CASE("names of processes in the names of their cores") {
  const std::string name = joined("AK", "IA3E3HEZCG2GDTXLLD").substr(0, 15);
  for (const std::string before : {"/var/lib/systemd/coredump/core.", "core.", "core-"})
    for (const std::string after : {".1000.0123456789abcdef0123456789abcdef.4711.1769860800000000.zst", "-4711", ""})
      CHECK(without_secrets(before + name + after, Text::kPath) == before + "<token>" + after);
  for (const std::string other : {std::string("/x/core.python3.4711"), std::string("/x/core.4711"), "/x/score." + name,
                                  "/x/core-" + name.substr(0, 9)})
    CHECK(without_secrets(other, Text::kPath) == other);
}

TEST_CASE("long tokens that look random") {
  CHECK(words("key wJ4lr8UtnF3M/K7M5E9G/bP2RfiCY7aB1xQ0vZ6s") == "key <token>");
  CHECK(words("id " + kHex32) == "id <token>");
  CHECK(words("a=" + k36) == "a=<token>");
  CHECK(name("worker_" + k36) == "worker_<token>");
  CHECK(path("/data/" + k36 + "/x.py") == "/data/<token>/x.py");
}

TEST_CASE("what is no secret stays") {
  for (const std::string& text : {"--max-tokens 4096",
                                  "--pad_token_id 0",
                                  "num_tokens=12",
                                  "tokens_per_batch=8192",
                                  "PWD=/home/u",
                                  "pwd=/x",
                                  "--tokenizer-model /m/llama-2-7b",
                                  "--special-tokens=true",
                                  "password",
                                  "forward_pass=3",
                                  "--n-pass 2",
                                  "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py",
                                  "torch.distributed.run",

                                  "WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=1024, Timeout(ms)=12000)",
                                  "2026-01-31T12:00:00.123Z",
                                  "GPU-1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901",
                                  "pipe:[123456789]",
                                  "libtorch_cuda_linalg.so",
                                  "shard-00003-of-00128.tar",
                                  "llama-7b-SFT-2024-01-02T12-33-44Z-run3",
                                  "Basic block of the kernel",
                                  "/opt/conda/envs/py311/lib/python3.11/site-packages/vllm/v1/engine/core.py"}) {
    CAPTURE(text);
    CHECK(words(text) == text);
  }
  for (const std::string& text :
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "_ZN7cutlass6KernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective13CollectiveMmaI",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> "
        ">",
        "triton_poi_fused__to_copy_add_mul_native_layer_norm_0d1d2d3de4de", "memcpy@GLIBC_2.14",
        "std::_Function_handler<void (), c10d::Reducer::mark_variable_ready(unsigned long)::{lambda()#1}>::_M_invoke",
        "operator==", "Trainer.train_step.<locals>.<lambda>",
        "cutlass_80_tensorop_s16816gemm_bf16_256x128_32x3_nn_align8"}) {
    CAPTURE(text);
    CHECK(name(text) == text);
  }
  for (const std::string& text : {"/nix/store/0c5b8vw40d1178xlpddw65q9gf1h2186-glibc-2.38/lib/libc.so.6",
                                  "/home/u/.triton/cache/KMTVXZ2A6J3QH5NRWEYUI4OPDSFGLCBM7XZAVKQ2JH3N5RWEYUIQ/x.so",
                                  "/tmp/torchinductor_u/6j/c6jxq3v5fd7kwz2hbn4mtlyyscrpea6ouig3dqfvkx2w7zhnbt4m.py",
                                  "<frozen importlib._bootstrap>"}) {
    CAPTURE(text);
    CHECK(path(text) == text);
  }
}

TEST_CASE("digests that say what they are of stay") {
  for (const std::string text : {"the core has build-id aa95e58e4b030f8ec67941da5523bfc9967ce0cc, the file has "
                                 "0123456789abcdef0123456789abcdef01234567",
                                 "/home/u/.cache/huggingface/blobs/aa95e58e4b030f8ec67941da5523bfc9967ce0cc"})
    CHECK(without_secrets(text, Text::kWords) == text);
  CHECK(without_secrets("login aa95e58e4b030f8ec67941da5523bfc9967ce0cc", Text::kWords) == "login <token>");
}

TEST_CASE("hostile texts take time in proportion to their length") {
  for (const std::string& part :
       {std::string("a="), std::string("token="), std::string("eyJaaaaaaaa-"), std::string("a/"),
        std::string("-----BEGIN "), std::string("--password "), std::string("https://a"), std::string("\xff"),
        std::string("Bearer "), std::string("\"token\":\""), std::string("key="), std::string("\"key\":\""),
        std::string("login password "), std::string("12345678:"), std::string("/")}) {
    std::string text;
    while (text.size() < 200'000) text += part;
    for (const auto& of : {words, name, path}) CHECK(of(text).size() <= 4 * text.size());
  }
}
