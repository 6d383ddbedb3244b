"""Kinds of secret, as they stand in command lines, settings and messages: what is planted, and which part of it is the secret.

Each text has its secret between braces. The bars are taken out, so that no scanner takes this file for a leak; two of them are one.
"""
import collections
import random
import string

Kind = collections.namedtuple("Kind", "name text secret parts")

ALPHABETS = {"mixed": string.ascii_letters + string.digits, "hex": "0123456789abcdef", "upper": string.ascii_uppercase + "234567",
             "base64": string.ascii_letters + string.digits + "+/", "phrase": string.ascii_lowercase}

KINDS = """
aws-access-key            {AK|IA%(upper_16)s}
aws-temporary-key         {AS|IA%(upper_16)s}
aws-secret-by-name        aws_secret_access_key={%(base64_40)s}
aws-secret-alone          {%(base64_40)s}
aws-session-token         AWS_SESSION_TOKEN={FwoGZXIvYXdzE%(mixed_40)s}
gcp-api-key               {AI|zaSyD%(mixed_34)s}
gcp-access-token          {ya|29.a0AfH6SM%(mixed_40)s}
gcp-client-secret         {GO|CSPX-%(mixed_28)s}
gcp-service-account       "private_key": "-----BEGIN PRIV|ATE KEY-----\\n{MIIEvQIBADANBgkqhkiG9w0B%(mixed_40)s}\\n-----END PRIV|ATE KEY-----\\n"
azure-account-key         DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={%(base64_86)s==};EndpointSuffix=core.windows.net
azure-shared-signature    https://acct.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig={%(mixed_40)s%%3D}&se=2026
azure-client-secret       {a1B|8Q~%(mixed_34)s}
hugging-face              {h|f_%(mixed_34)s}
wandb-by-name             WANDB_API_KEY={%(hex_40)s}
wandb-new                 {wan|db_v1_%(mixed_40)s}
wandb-alone               wandb: using {%(hex_40)s}
github-personal           {gh|p_%(mixed_36)s}
github-app                {gh|s_%(mixed_36)s}
github-fine-grained       {github|_pat_11ABCDEFG0%(mixed_40)s}
gitlab                    {gl|pat-%(mixed_20)s}
slack-bot                 {xo|xb-123456789012-123456789012-%(mixed_24)s}
slack-webhook             https://hooks.slack.com/services/T0123ABCD/B0123ABCD/{%(mixed_24)s}
openai                    {s|k-proj-%(mixed_40)s}
anthropic                 {s|k-ant-api03-%(mixed_40)s}
stripe                    {s|k_live_%(mixed_24)s}
stripe-webhook            {wh|sec_%(mixed_32)s}
npm                       {np|m_%(mixed_36)s}
pypi                      {py|pi-AgEIcHlwaS5vcmcC%(mixed_40)s}
sendgrid                  {S|G.%(mixed_22)s.%(mixed_40)s}
mailgun                   {ke|y-%(hex_32)s}
twilio                    {S|K%(hex_32)s}
databricks                {da|pi%(hex_32)s}
digitalocean              {do|p_v1_%(hex_64)s}
docker-hub                {dc|kr_pat_%(mixed_27)s}
vault                     {hv|s.%(mixed_40)s}
telegram-bot              {123456789:AA%(mixed_33)s}
nvidia                    {nv|api-%(mixed_40)s}
replicate                 {r|8_%(mixed_36)s}
kaggle                    {"username":"u","key":"{%(hex_32)s}"}
neptune                   NEPTUNE_API_TOKEN={eyJ|hcGlfYWRkcmVzcyI6%(mixed_40)s}
mlflow                    MLFLOW_TRACKING_PASSWORD={%(phrase_8)s-%(phrase_10)s}
grafana                   {gl|sa_%(mixed_32)s_3f9a1c7e}
langsmith                 {ls|v2_pt_%(hex_32)s_3f9a1c7e5b}
json-web-token            {ey|JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.%(mixed_40)s}
bearer                    Authorization: Bearer {%(mixed_40)s}
basic                     Authorization: Basic {QWxhZGRpbjpvcGVuIHNlc2FtZQ==}
url-postgres              postgres://svc:{%(phrase_8)s-%(phrase_10)s}@db.example.com:5432/x
url-redis                 redis://:{%(phrase_8)s%%40%(phrase_10)s}@cache:6379/0
url-https                 https://x-access-token:{%(phrase_8)s-%(phrase_10)s}@github.com/a/b.git
url-sentry                https://{%(hex_32)s}@o1.ingest.sentry.io/1
odbc                      Server=tcp:db;Database=x;Uid=sa;Pwd={%(phrase_8)s-%(phrase_10)s};Encrypt=yes
jdbc                      jdbc:postgresql://db/x?user=u&password={%(phrase_8)s-%(phrase_10)s}&ssl=true
rsa-key                   -----BEGIN RSA PRIV|ATE KEY-----
{MIIEpAIBAAKCAQEA%(mixed_40)s}
-----END RSA PRIV|ATE KEY-----
openssh-key               -----BEGIN OPENSSH PRIV|ATE KEY-----
{b3BlbnNzaC1rZXktdjEA%(mixed_40)s}
-----END OPENSSH PRIV|ATE KEY-----
pgp-key                   -----BEGIN PGP PRIV|ATE KEY BLOCK-----
{lQOYBGAAAAABCAC7%(mixed_40)s}
-----END PGP PRIV|ATE KEY BLOCK-----
cookie                    Cookie: theme=dark; sessionid={%(phrase_8)s-%(phrase_10)s}
set-cookie                Set-Cookie: sid={%(phrase_8)s-%(phrase_10)s}; HttpOnly
x-api-key                 X-Api-Key: {%(phrase_8)s-%(phrase_10)s}
csrf                      X-CSRF-Token: {%(phrase_8)s-%(phrase_10)s}
secret-by-name            MY_SERVICE_SECRET={%(phrase_8)s-%(phrase_10)s}
password-option           --db-password={%(phrase_8)s-%(phrase_10)s}
passphrase                passphrase: {%(phrase_8)s-%(phrase_10)s}
netrc                     machine api.wandb.ai login user password {%(phrase_8)s-%(phrase_10)s}
docker-config             {"auths":{"ghcr.io":{"auth":"{dXNlcjpwYXNzd29yZDEyMw==}"}}}
kubeconfig                client-key-data: {LS0tLS1CRUdJTiBSU0Eg%(mixed_40)s}
ngc                       {%(base64_84)s}
hex-64                    signing with {%(hex_64)s}
aws-configure             aws configure set aws_secret_access_key {%(base64_40)s}
teams-webhook             https://acme.webhook.office.com/webhookb2/11111111-2222-3333-4444-555555555555@66666666-7777-8888-9999-000000000000/IncomingWebhook/{%(hex_32)s}/77777777-8888-9999-0000-111111111111
teams-webhook-alone       POST /IncomingWebhook/{%(hex_32)s}/77777777-8888-9999-0000-111111111111
discord-webhook           https://discord.com/api/webhooks/987654321098765432/{%(phrase_10)s_%(phrase_10)s-%(phrase_10)s}
header-token              Authorization: token {%(phrase_8)s-%(phrase_10)s}
header-api-key            Authorization: ApiKey {%(phrase_8)s-%(phrase_10)s}
header-unknown            Authorization: Acme-V2 {%(phrase_8)s-%(phrase_10)s}
header-digest             curl -H "Authorization: Digest username=\"u\", realm=\"r\", response=\"{%(hex_32)s}\""
mysql                     mysql -uroot -p{%(phrase_8)s-%(phrase_10)s} db
mysql-of-list             ['mysqldump', '-uroot', '-p{%(phrase_8)s-%(phrase_10)s}', 'db']
mysql-quoted              mysql -uroot -p'{%(phrase_8)s-%(phrase_10)s}' db
sshpass-attached          sshpass -p{%(phrase_8)s-%(phrase_10)s} ssh -p 22 h
sshpass                   sshpass -p {%(phrase_8)s-%(phrase_10)s} ssh -p 22 h
sshpass-variable          SSHPASS={%(phrase_8)s-%(phrase_10)s}
curl-of-shell             sh -c "curl -u 'me:{%(phrase_8)s-%(phrase_10)s}' h || sh"
curl-attached             curl -ume:{%(phrase_8)s-%(phrase_10)s} h
curl-grouped              curl -fsSu me:{%(phrase_8)s-%(phrase_10)s} h
curl-of-json              ["curl","--user","me:{%(phrase_8)s-%(phrase_10)s}","h"]
redis                     redis-cli -a {%(phrase_8)s-%(phrase_10)s} ping
docker-login              docker login -u me -p {%(phrase_8)s-%(phrase_10)s} r.io
zip-grouped               zip -rP {%(phrase_8)s-%(phrase_10)s} x.zip x
keytool                   keytool -list -storepass {%(phrase_8)s-%(phrase_10)s}
openssl                   openssl rsa -passin pass:{%(phrase_8)s-%(phrase_10)s} -in x
option-pass               rclone --sftp-pass {%(phrase_8)s-%(phrase_10)s} ls
smbclient                 smbclient -U bob%%{%(phrase_8)s-%(phrase_10)s} h
ldapsearch                ldapsearch -x -w {%(phrase_8)s-%(phrase_10)s} -b o
ipmitool                  ipmitool -U admin -P {%(phrase_8)s-%(phrase_10)s} power
mongosh                   mongosh -u bob -p {%(phrase_8)s-%(phrase_10)s} db
sudo-of-pipe              echo "{%(phrase_8)s-%(phrase_10)s}" || sudo -S ls
sudo-of-here              sudo -kS ls <<< {%(phrase_8)s-%(phrase_10)s}
login-of-pipe             printf %%s {%(phrase_8)s-%(phrase_10)s} || docker login -u me --password-stdin
age                       AGE-SE|CRET-KEY-1{QQPQZQJQ8Q9Q0QWERTYU%(upper_28)s}
""".strip("\n")


class _Values(dict):
    """%(mixed_40)s: 40 characters of an alphabet, others for each kind, the same in each run."""

    def __init__(self, name):
        super().__init__()
        self.random = random.Random(name)

    def __missing__(self, key):
        alphabet, length = key.rsplit("_", 1)
        return "".join(self.random.choice(ALPHABETS[alphabet]) for _ in range(int(length)))


def _lines():
    """The lines of KINDS; a line that begins without a name goes on with the text of the line before."""
    for line in KINDS.split("\n"):
        name = line.split(" ", 1)[0]
        if line[len(name):len(name) + 2] == "  " and name == name.lower() and name[0].isalnum():
            yield [name, line[26:]]
        else:
            yield [None, line]


def _without_bars(text):
    return "|".join(part.replace("|", "") for part in text.split("||"))


def _parse(text):
    """(the text without the braces of the secret, the secret): the innermost pair of braces, as JSON has some as well."""
    close = text.find("}")
    start = text.rfind("{", 0, close)
    return text[:start] + text[start + 1:close] + text[close + 1:], text[start + 1:close]


def kinds():
    found = []
    for name, text in _lines():
        if name is None:
            found[-1][1] += "\n" + text
        else:
            found.append([name, text])
    result = []
    for name, text in found:
        planted, secret = _parse(_without_bars(text) % _Values(name))
        # A secret of which a part is shown is found as well.
        parts = {secret[at:at + 12] for at in range(0, max(1, len(secret) - 11), 6)} | {secret[-12:]}
        result.append(Kind(name, planted, secret, sorted(parts)))
    return result


KINDS_OF_SECRETS = kinds()
