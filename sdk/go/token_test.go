package bindery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kube-bind.io/bindery/sdk/go/internal/timing"
)

func TestOnlyTokensBecomeHeaders(t *testing.T) {
	for token, expect := range map[string]string{
		"":                                    "TokenEmpty",
		"a b":                                 "TokenMalformed",
		"a\r\nx: y":                           "TokenMalformed",
		"tök":                                 "TokenMalformed",
		strings.Repeat("x", tokenLengthMax+1): "TokenTooLong",
	} {
		if value, err := bearer(token); err == nil || err.ReasonString() != expect || value != "" {
			t.Errorf("%q: %v", token, err)
		}
	}
	if value, err := bearer("a.b.c"); value != "Bearer a.b.c" || err != nil {
		t.Error(value, err)
	}
}

func TestNoTokenIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "hunter2")
	sources := []TokenSource{StaticToken("hunter2"), TokenFile(path), TokenCommand("sh", "-c", "echo hunter2")}
	for _, source := range sources {
		if token, err := source.Token(t.Context()); token != "hunter2" || err != nil {
			t.Fatal(err)
		}
		client, err := NewClient("https://bind.example.com", WithTokenSource(source))
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []any{source, client, *client, client.settings, *client.settings, conn{client}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
				if shown := fmt.Sprintf(verb, value); strings.Contains(shown, "hunter2") || strings.Contains(shown, "68756e74657232") {
					t.Errorf("%T with %s: %s", value, verb, shown)
				}
			}
		}
	}
}

// write writes a file, and makes the change visible to whoever looks at its time.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeUnseen writes without a change that the file's metadata would show.
func writeUnseen(t *testing.T, path, text string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func expectToken(t *testing.T, source TokenSource, expect string) {
	t.Helper()
	if token, err := source.Token(t.Context()); token != expect || err != nil {
		t.Errorf("%q instead of %q: %v", token, expect, err)
	}
}

func TestAFileIsReadAgainWhenChangedOldOrExpired(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "one\n")
	source := &tokenFile{path: path}
	expectToken(t, source, "one")

	writeUnseen(t, path, "two\n")
	expectToken(t, source, "one")
	source.ForgetToken("another")
	expectToken(t, source, "one")
	source.ForgetToken("one")
	expectToken(t, source, "two")

	writeUnseen(t, path, "six\n")
	source.last.at = source.last.at.Add(-tokenRereadAfter)
	expectToken(t, source, "six")

	write(t, path, "longer\n")
	expectToken(t, source, "longer")
}

// The kubelet writes a projected token by swapping a symbolic link.
func TestAProjectedTokenIsFollowedThroughItsLink(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "1"), "one")
	write(t, filepath.Join(folder, "2"), "two")
	link := filepath.Join(folder, "token")
	if err := os.Symlink("1", link); err != nil {
		t.Fatal(err)
	}
	source := TokenFile(link)
	expectToken(t, source, "one")
	if err := os.Symlink("2", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	expectToken(t, source, "two")
}

func TestAMissingFileIsNamed(t *testing.T) {
	_, err := TokenFile("/nonexistent/token").Token(t.Context())
	failure := sourceError(err)
	if failure.ReasonString() != "TokenFileUnreadable" || !strings.Contains(failure.Error(), "/nonexistent/token") ||
		!errors.Is(failure, os.ErrNotExist) {
		t.Error(failure)
	}
}

// counting is a command that prints a text with the number of its runs for $n.
func counting(t *testing.T, text string) TokenSource {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs")
	return TokenCommand("sh", "-c", `echo x >> "$1"; n=$(wc -l < "$1"); eval "printf '%s' \"$2\""`, "sh", file, text)
}

func TestACommandRunsUntilItsTokenExpires(t *testing.T) {
	credential := func(expires string) string {
		return `{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t-$n\",\"expirationTimestamp\":\"` + expires + `\"}}`
	}
	for name, check := range map[string]struct{ text, second string }{
		"a token":            {"t-$n", "t-1"},
		"a long life":        {credential("2999-01-01T00:00:00Z"), "t-1"},
		"expired":            {credential("2001-01-01T00:00:00Z"), "t-2"},
		"within the margin":  {credential(time.Now().Add(tokenExpiryMargin - time.Second).UTC().Format(time.RFC3339)), "t-2"},
		"outside the margin": {credential(time.Now().Add(tokenExpiryMargin + time.Minute).UTC().Format(time.RFC3339)), "t-1"},
	} {
		t.Run(name, func(t *testing.T) {
			source := counting(t, check.text)
			expectToken(t, source, "t-1")
			expectToken(t, source, check.second)
			source.(TokenForgetter).ForgetToken("another")
			if check.second == "t-1" {
				expectToken(t, source, "t-1")
				source.(TokenForgetter).ForgetToken("t-1")
				expectToken(t, source, "t-2")
			}
		})
	}
}

func TestATokenWithoutAnExpiryIsUsedForAMinute(t *testing.T) {
	for _, output := range []string{"a-token", `{"kind":"ExecCredential","status":{"token":"a-token"}}`} {
		token, err := parseCommandToken(output, time.Now())
		if err != nil || token.token() != "a-token" {
			t.Fatal(err)
		}
		if now := time.Now(); !token.isCurrent(now.Add(tokenReuse-time.Second)) || token.isCurrent(now.Add(tokenReuse)) {
			t.Error(output)
		}
	}
}

func TestManyCallsRunACommandOnce(t *testing.T) {
	source := counting(t, "t-$n")
	tokens := make(chan string)
	for range 8 {
		go func() {
			token, err := source.Token(t.Context())
			tokens <- fmt.Sprint(token, err)
		}()
	}
	for range 8 {
		if got := <-tokens; got != "t-1<nil>" {
			t.Error(got)
		}
	}
}

func TestWhatACommandPrintsIsNeverInItsError(t *testing.T) {
	for script, expect := range map[string]string{
		"echo hunter2; exit 3":                               "exit status 3",
		"echo token hunter2 rejected >&2; exit 3":            "exit status 3",
		"echo '{\"kind\": \"hunter2\"'":                      "no ExecCredential",
		"echo '{\"kind\":\"ExecCredential\",\"status\":{}}'": "no ExecCredential with a token",
		"echo '{\"kind\":\"Secret\"}'":                       "no ExecCredential with a token",
	} {
		_, err := TokenCommand("sh", "-c", script).Token(t.Context())
		failure := sourceError(err)
		if failure.ReasonString() != "TokenSourceFailed" || !strings.Contains(failure.Error(), expect) ||
			strings.Contains(fmt.Sprintf("%v %+v %#v", failure, failure, failure), "hunter2") {
			t.Errorf("%s: %v", script, failure)
		}
	}
	_, err := TokenCommand("/nonexistent/plugin").Token(t.Context())
	if failure := sourceError(err); !strings.Contains(failure.Error(), "/nonexistent/plugin") {
		t.Error(failure)
	}
}

func TestACommandLearnsWhichVersionIsSpoken(t *testing.T) {
	t.Setenv("KUBERNETES_EXEC_INFO", "of-another-plugin")
	script := `case "$KUBERNETES_EXEC_INFO" in *client.authentication.k8s.io/v1\"*interactive\":false*) echo told;; esac; cat`
	expectToken(t, TokenCommand("sh", "-c", script), "told")
}

func within(limit time.Duration, script string, args ...string) TokenSource {
	return TokenCommandWithin(timing.Command{Limit: limit}, "sh", append([]string{"-c", script, "sh"}, args...)...)
}

func TestACommandThatDoesNotEndIsKilled(t *testing.T) {
	start := time.Now()
	_, err := within(200*time.Millisecond, "trap '' TERM; while :; do sleep 0.05; done").Token(t.Context())
	failure := sourceError(err)
	if failure.ReasonString() != "TokenSourceFailed" || !strings.Contains(failure.Error(), "killed, because it ran for more than 0.2 s") ||
		time.Since(start) > 30*time.Second {
		t.Errorf("%v after %v", failure, time.Since(start))
	}
}

func TestARunOutlivesTheCallThatBeganIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs")
	source := within(time.Minute, `echo x >> "$1"; sleep 0.5; wc -l < "$1"`, file)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := source.Token(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	expectToken(t, source, "1")
}

// A run that began before the refusal can print the refused token; it must not be sent again.
func TestARunFromBeforeARefusalDoesNotBringTheTokenBack(t *testing.T) {
	folder := t.TempDir()
	source := within(time.Minute, `echo x >> "$1/runs"; n=$(wc -l < "$1/runs")
		if [ "$n" = 1 ]; then echo stale; while [ ! -e "$1/go" ]; do sleep 0.02; done; else echo fresh; fi`, folder)
	got := make(chan string)
	go func() {
		token, err := source.Token(t.Context())
		got <- fmt.Sprint(token, err)
	}()
	for {
		if _, err := os.Stat(filepath.Join(folder, "runs")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	source.(TokenForgetter).ForgetToken("stale")
	write(t, filepath.Join(folder, "go"), "")
	if token := <-got; token != "fresh<nil>" {
		t.Error(token)
	}
	expectToken(t, source, "fresh")
}

func TestLateRefusalsOfTheOldTokenKeepTheNewOne(t *testing.T) {
	source := counting(t, "t-$n")
	expectToken(t, source, "t-1")
	for range 40 {
		source.(TokenForgetter).ForgetToken("t-1")
		expectToken(t, source, "t-2")
	}
}

// A command that has no other token than the refused one is not run by each of the calls that were refused.
func TestACommandWithNoOtherTokenIsNotRunForEachRefusal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs")
	source := within(time.Minute, `echo x >> "$1"; echo same`, file)
	expectToken(t, source, "same")
	for range 40 {
		source.(TokenForgetter).ForgetToken("same")
		expectToken(t, source, "same")
	}
	if runs, err := os.ReadFile(file); string(runs) != "x\nx\n" {
		t.Errorf("%q, %v", runs, err)
	}
	command := source.(*tokenCommand)
	command.last.began = command.last.began.Add(-commandRerunAfter)
	source.(TokenForgetter).ForgetToken("same")
	expectToken(t, source, "same")
	if runs, _ := os.ReadFile(file); string(runs) != "x\nx\nx\n" {
		t.Errorf("it is never run again: %q", runs)
	}
}

func TestTheTextOfAUsersErrorIsNotShown(t *testing.T) {
	for name, cause := range map[string]error{
		"an error":   errors.New("hunter2"),
		"a timeout":  fmt.Errorf("hunter2: %w", context.DeadlineExceeded),
		"logged out": fmt.Errorf("hunter2: %w", ErrLoggedOut),
	} {
		failure := sourceError(cause)
		if failure.Kind != KindToken || !errors.Is(failure, cause) ||
			strings.Contains(fmt.Sprintf("%v %+v %#v", failure, failure, failure), "hunter2") {
			t.Errorf("%s: %v", name, failure)
		}
	}
}

func TestSourcesSayWhetherTheUserMustLogIn(t *testing.T) {
	out := sourceError(fmt.Errorf("run kubectl bind login: %w", ErrLoggedOut))
	if out.ReasonString() != "LoggedOut" || !errors.Is(out, ErrLoggedOut) {
		t.Error(out)
	}
	if away := sourceError(errors.New("the issuer is away")); away.ReasonString() != "TokenSourceFailed" {
		t.Error(away)
	}
}
