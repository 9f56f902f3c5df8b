package main

import (
	"encoding/json"
	"net/http"
)

// control returns the handler by which tests change what the issuer does.
//
// PUT /users replaces all users, PUT /lifetimes all lifetimes. POST /rotate makes a new key that signs from now on;
// {"keep": true} goes on publishing the former ones.
func control(store *store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /users", change(func(users []user) error {
		store.lock.Lock()
		defer store.lock.Unlock()
		store.settings.Users = users
		return nil
	}))
	mux.HandleFunc("PUT /lifetimes", change(func(lifetimes lifetimes) error {
		store.lock.Lock()
		defer store.lock.Unlock()
		store.settings.Lifetimes = lifetimes
		return nil
	}))
	mux.HandleFunc("POST /rotate", change(func(rotation struct{ Keep bool }) error {
		return store.rotate(rotation.Keep)
	}))
	return mux
}

// change returns a handler that reads the body of a request as JSON and applies it.
func change[T any](apply func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var content T
		err := json.NewDecoder(r.Body).Decode(&content)
		if err == nil {
			err = apply(content)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
