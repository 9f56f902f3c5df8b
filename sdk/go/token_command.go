package bindery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// tokenReuse is how long a command's token is used that does not say when it expires.
	tokenReuse = time.Minute
	// tokenExpiryMargin is how long before its expiry a command's token is not used any more.
	tokenExpiryMargin = 30 * time.Second
	// commandOutputMax limits what is kept of a command's output, in bytes.
	commandOutputMax = 256 << 10
	// commandErrorMax limits how much of a command's error output stands in an error, in bytes.
	commandErrorMax = 512
	// commandKillDelay is how long a command whose context has ended may hold its output open.
	commandKillDelay = time.Second
)

// tokenCommand runs a command that prints a token.
type tokenCommand struct {
	name string
	// args is a function because arguments can hold secrets, and fmt prints a function as its address.
	args func() []string

	// turn holds one value; the call that has taken it may run the command.
	turn chan struct{}

	mu   sync.Mutex
	last *commandToken
}

// commandToken is a token that a command printed.
type commandToken struct {
	token secret
	// notAfter is when the token is not used any more.
	notAfter time.Time
}

// execCredential is what an exec credential plugin of client-go prints.
type execCredential struct {
	Kind   string `json:"kind"`
	Status struct {
		Token               string    `json:"token"`
		ExpirationTimestamp time.Time `json:"expirationTimestamp"`
	} `json:"status"`
}

// TokenCommand returns a token source that runs a command, such as "kubectl bind token --exec-credential" or an exec credential
// plugin of client-go. The command prints a token, or an ExecCredential. The token is remembered until 30 s before its
// expirationTimestamp, or for a minute if it has none, and until the server says that it has expired. The command ends with the
// context of the call that runs it.
func TokenCommand(name string, args ...string) TokenSource {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	return &tokenCommand{name: name, args: func() []string { return args }, turn: turn}
}

func (c *tokenCommand) Token(ctx context.Context) (string, error) {
	if token, ok := c.remembered(); ok {
		return token, nil
	}
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	// Another call may have run the command meanwhile.
	if token, ok := c.remembered(); ok {
		return token, nil
	}
	token, err := c.run(ctx)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = token
	return token.token(), nil
}

func (c *tokenCommand) remembered() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || !c.last.isCurrent(time.Now()) {
		return "", false
	}
	return c.last.token(), true
}

func (c *tokenCommand) run(ctx context.Context) (*commandToken, error) {
	command := exec.CommandContext(ctx, c.name, c.args()...)
	command.WaitDelay = commandKillDelay
	command.Env = commandEnvironment(os.Environ())
	var output, errorOutput limitedBuffer
	output.limit, errorOutput.limit = commandOutputMax, commandOutputMax
	command.Stdout, command.Stderr = &output, &errorOutput
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.failed(err, output.text(), errorOutput.text())
	}
	token, err := parseCommandToken(output.text())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	return token, nil
}

// commandEnvironment adds what client-go tells its exec credential plugins, some of which refuse to work without it.
func commandEnvironment(environment []string) []string {
	const name = "KUBERNETES_EXEC_INFO="
	if slices.ContainsFunc(environment, func(variable string) bool { return strings.HasPrefix(variable, name) }) {
		return environment
	}
	const info = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}`
	return append(environment, name+info)
}

// failed says why the command failed, in its own words where it has some. What it printed as its output is never shown.
func (c *tokenCommand) failed(err error, output, errorOutput string) error {
	words := strings.TrimSpace(errorOutput)
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" {
			words = strings.ReplaceAll(words, line, "…")
		}
	}
	if len(words) > commandErrorMax {
		words = "…" + strings.ToValidUTF8(words[len(words)-commandErrorMax:], "")
	}
	if words == "" {
		return fmt.Errorf("%s: %w", c, err)
	}
	return fmt.Errorf("%s: %w: %s", c, err, printable(words))
}

// parseCommandToken reads what a command printed: an ExecCredential, or else a token.
func parseCommandToken(output string) (*commandToken, error) {
	text := strings.TrimSpace(output)
	if !strings.HasPrefix(text, "{") {
		return &commandToken{token: newSecret(text), notAfter: time.Now().Add(tokenReuse)}, nil
	}
	var credential execCredential
	// The errors of encoding/json can quote what they parse.
	if err := json.Unmarshal([]byte(text), &credential); err != nil {
		return nil, errors.New("it printed JSON that is no ExecCredential")
	}
	if credential.Kind != "ExecCredential" || credential.Status.Token == "" {
		return nil, errors.New("it printed JSON that is no ExecCredential with a token")
	}
	token := &commandToken{token: newSecret(credential.Status.Token), notAfter: time.Now().Add(tokenReuse)}
	if expires := credential.Status.ExpirationTimestamp; !expires.IsZero() {
		token.notAfter = expires.Add(-tokenExpiryMargin)
	}
	return token, nil
}

func (t *commandToken) isCurrent(now time.Time) bool { return now.Before(t.notAfter) }

// ForgetToken makes the next call run the command again.
func (c *tokenCommand) ForgetToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.last.token() == token {
		c.last = nil
	}
}

// String names the command, without its arguments.
func (c *tokenCommand) String() string { return "TokenCommand " + c.name }

// GoString names the command, without its arguments.
func (c *tokenCommand) GoString() string { return fmt.Sprintf("bindery.TokenCommand(%q, …)", c.name) }

// limitedBuffer keeps the first bytes that are written to it, and drops the rest.
type limitedBuffer struct {
	buffer bytes.Buffer
	limit  int
}

func (b *limitedBuffer) Write(data []byte) (int, error) {
	b.buffer.Write(data[:min(len(data), b.limit-b.buffer.Len())])
	return len(data), nil
}

func (b *limitedBuffer) text() string { return b.buffer.String() }
