// An S3 server that keeps its objects in a file: program FILE HOST:PORT.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3bolt"
)

func main() {
	backend, err := s3bolt.NewFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[2], gofakes3.New(backend).Server()))
}
