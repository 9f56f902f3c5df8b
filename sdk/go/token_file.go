package bindery

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// tokenRereadAfter is the time after which a token file is read again even if its metadata has not changed: not every file system
// updates it.
const tokenRereadAfter = time.Minute

// tokenFile reads the token from a file: when the file has changed, every minute, and when the server says that the token has
// expired.
type tokenFile struct {
	path string

	mu   sync.Mutex
	last *tokenRead
}

// tokenRead is a token that was read, when, and the file then.
type tokenRead struct {
	token secret
	info  os.FileInfo
	at    time.Time
}

// TokenFile returns a token source that reads this file, which another program keeps fresh, such as a projected ServiceAccount
// token. White space around the token is dropped.
func TokenFile(path string) TokenSource { return &tokenFile{path: path} }

func (f *tokenFile) Token(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return "", f.failed(err)
	}
	if f.last != nil && f.last.isCurrent(info) {
		return f.last.token(), nil
	}
	text, err := readToken(f.path)
	if err != nil {
		return "", f.failed(err)
	}
	token := strings.TrimSpace(text)
	f.last = &tokenRead{token: newSecret(token), info: info, at: time.Now()}
	return token, nil
}

// readToken reads little more than a token can have, so that a wrong path does no harm.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 2*tokenLengthMax))
	return string(text), err
}

func (r *tokenRead) isCurrent(info os.FileInfo) bool {
	return os.SameFile(r.info, info) && r.info.ModTime().Equal(info.ModTime()) && r.info.Size() == info.Size() &&
		time.Since(r.at) < tokenRereadAfter
}

func (f *tokenFile) failed(err error) error {
	return tokenError("TokenFileUnreadable", fmt.Sprintf("cannot read the token file %s: %v", f.path, err), err)
}

// ForgetToken makes the next call read the file again.
func (f *tokenFile) ForgetToken(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && f.last.token() == token {
		f.last = nil
	}
}

// String names the file.
func (f *tokenFile) String() string { return "TokenFile " + f.path }

// GoString names the file.
func (f *tokenFile) GoString() string { return fmt.Sprintf("bindery.TokenFile(%q)", f.path) }
