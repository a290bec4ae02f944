"""A user, keys and a bucket in a moto server, and in the bucket a backup that is too old: s3_account.py ENDPOINT BUCKET. Prints the keys.

The first three requests need no credentials there; every later one has to be signed by somebody who is known.
"""

import json
import sys

import boto3

endpoint, bucket = sys.argv[1:]


def connect(service, key, secret):
    where = {"endpoint_url": endpoint, "region_name": "eu-central-1"}
    return boto3.client(service, aws_access_key_id=key, aws_secret_access_key=secret, **where)


iam = connect("iam", "nobody", "nothing")
iam.create_user(UserName="trireme")
everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
iam.put_user_policy(UserName="trireme", PolicyName="all", PolicyDocument=policy)
keys = iam.create_access_key(UserName="trireme")["AccessKey"]

s3 = connect("s3", keys["AccessKeyId"], keys["SecretAccessKey"])
s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
name = "scheduled-19990101T000000Z-7"
old = {"name": name, "created": "1999-01-01T00:00:00Z", "revision": 7, "objects": 1, "size": 1}
s3.put_object(Bucket=bucket, Key=f"clusters/one/{name}/store", Body=b"x")
s3.put_object(Bucket=bucket, Key=f"clusters/one/{name}/backup.json", Body=json.dumps(old).encode())
print(keys["AccessKeyId"], keys["SecretAccessKey"])
