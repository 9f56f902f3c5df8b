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

	"kube-bind.io/bindery/sdk/go/internal/timing"
)

const (
	// tokenReuse is how long a command's token is used that does not say when it expires.
	tokenReuse = time.Minute
	// tokenExpiryMargin is how long before its expiry a command's token is not used any more.
	tokenExpiryMargin = 30 * time.Second
	// commandOutputMax limits what is kept of a command's output, in bytes.
	commandOutputMax = 256 << 10
	// commandOutputDelay is how long a child of a command that has ended may hold the output open.
	commandOutputDelay = time.Second
	// commandRerunAfter is the time within which a command is not run again if it printed the token that the server had refused.
	commandRerunAfter = 5 * time.Second
)

// tokenCommand runs a command that prints a token. All calls share one run, which goes on when the call that began it has ended.
type tokenCommand struct {
	name string
	// args is a function because arguments can hold secrets, and fmt prints a function as its address.
	args  func() []string
	limit time.Duration

	mu sync.Mutex
	// last is the token that was printed last; nil if there is none that may be used.
	last *commandToken
	// running is the run that goes on; nil if there is none.
	running *commandRun
	// refused is the token that the server refused last; nil if it refused none.
	refused secret
}

// commandRun is one run of a command.
type commandRun struct {
	done chan struct{}
	// isStale is set if the server refused a token after the run began. Guarded by the mutex of the source.
	isStale bool

	// The result, which is set before done is closed.
	token *commandToken
	err   error
}

// commandToken is a token that a command printed.
type commandToken struct {
	token secret
	// began is when the run began that printed it.
	began time.Time
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
// expirationTimestamp, or for a minute if it has none, and until the server says that it has expired.
//
// The command has no standard input, writes its standard error to that of this process, and finds an ExecCredential in the variable
// KUBERNETES_EXEC_INFO. It runs once at a time, for all calls that wait for it, and is killed after a minute.
func TokenCommand(name string, args ...string) TokenSource {
	return TokenCommandWithin(timing.DefaultCommand(), name, args...)
}

// TokenCommandWithin is [TokenCommand] with another time limit. Only tests of this module can make its first argument.
func TokenCommandWithin(times timing.Command, name string, args ...string) TokenSource {
	args = slices.Clone(args)
	return &tokenCommand{name: name, args: func() []string { return args }, limit: times.Limit}
}

func (c *tokenCommand) Token(ctx context.Context) (string, error) {
	for {
		token, run := c.current()
		if run == nil {
			return token, nil
		}
		select {
		case <-run.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if run.err != nil {
			return "", run.err
		}
		if c.isUsable(run) {
			return run.token.token(), nil
		}
	}
}

// current returns the remembered token, or else the run to wait for, which it begins if none goes on.
func (c *tokenCommand) current() (string, *commandRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.last.isCurrent(time.Now()) {
		return c.last.token(), nil
	}
	if c.running == nil {
		c.running = &commandRun{done: make(chan struct{})}
		go c.finish(c.running)
	}
	return "", c.running
}

// finish runs the command, and remembers its token.
func (c *tokenCommand) finish(run *commandRun) {
	defer close(run.done)
	run.token, run.err = c.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = nil
	if run.err == nil && !c.isRefused(run) {
		c.last = run.token
	}
}

// isUsable tells whether the token of a run may be sent.
func (c *tokenCommand) isUsable(run *commandRun) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isRefused(run)
}

// isRefused tells whether the server refused the token of a run after the run began. The mutex is held.
func (c *tokenCommand) isRefused(run *commandRun) bool {
	return run.isStale && c.refused != nil && run.token.token() == c.refused()
}

func (c *tokenCommand) run() (*commandToken, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	command := exec.CommandContext(ctx, c.name, c.args()...)
	command.WaitDelay = commandOutputDelay
	command.Env = commandEnvironment(os.Environ())
	output := &limitedBuffer{limit: commandOutputMax}
	command.Stdout, command.Stderr = output, os.Stderr
	err := command.Run()
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, sourceFailed(fmt.Sprintf("%s was killed, because it ran for more than %.1f s", c, c.limit.Seconds()), ctx.Err())
	case err != nil:
		// An error of os/exec shows the name of the program or its exit code, never its arguments or its output.
		return nil, sourceFailed(fmt.Sprintf("%s: %v", c, err), err)
	}
	token, err := parseCommandToken(output.text(), began)
	if err != nil {
		return nil, sourceFailed(fmt.Sprintf("%s: %v", c, err), err)
	}
	return token, nil
}

// commandEnvironment adds what client-go tells its exec credential plugins, some of which refuse to work without it.
func commandEnvironment(environment []string) []string {
	const name = "KUBERNETES_EXEC_INFO="
	const info = `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}`
	own := slices.DeleteFunc(environment, func(variable string) bool { return strings.HasPrefix(variable, name) })
	return append(own, name+info)
}

// parseCommandToken reads what a command printed: an ExecCredential, or else a token.
func parseCommandToken(output string, began time.Time) (*commandToken, error) {
	text := strings.TrimSpace(output)
	token := &commandToken{token: newSecret(text), began: began, notAfter: time.Now().Add(tokenReuse)}
	if !strings.HasPrefix(text, "{") {
		return token, nil
	}
	var credential execCredential
	// The errors of encoding/json can quote what they parse.
	if err := json.Unmarshal([]byte(text), &credential); err != nil {
		return nil, errors.New("it printed JSON that is no ExecCredential")
	}
	if credential.Kind != "ExecCredential" || credential.Status.Token == "" {
		return nil, errors.New("it printed JSON that is no ExecCredential with a token")
	}
	token.token = newSecret(credential.Status.Token)
	if expires := credential.Status.ExpirationTimestamp; !expires.IsZero() {
		token.notAfter = expires.Add(-tokenExpiryMargin)
	}
	return token, nil
}

func (t *commandToken) isCurrent(now time.Time) bool { return now.Before(t.notAfter) }

// ForgetToken makes the next call run the command again, if this token is still the remembered one. A run that began before does not
// bring the token back.
func (c *tokenCommand) ForgetToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isKnown := c.refused != nil && c.refused() == token
	if c.last != nil && c.last.token() == token {
		if isKnown && time.Since(c.last.began) < commandRerunAfter {
			// The command was run since the refusal, and has no other token yet.
			return
		}
		c.last = nil
	} else if isKnown {
		return
	}
	c.refused = newSecret(token)
	if c.running != nil {
		c.running.isStale = true
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
