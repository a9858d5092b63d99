"""The service on the wire: conversion, servicers, the guard around each call, and the gRPC server."""
